"""The demo's last step: a small Keras model, trained for an epoch on what `load_from_tar` gives."""

from __future__ import annotations

import time
import warnings
from typing import Any

from ais_tar2tf.cli.console import Console, duration
from ais_tar2tf.cli.quietly import import_tensorflow
from ais_tar2tf.dataset import AisDataset

__all__ = ["train_on"]


def train_on(console: Console, endpoint: str, bucket: str, shards: int, test_shards: int, classes: int) -> None:
    """Train on all but the last shards, and evaluate on those."""
    console.note("importing TensorFlow takes some seconds")
    import_tensorflow(keras=True)
    first = shards - test_shards
    with AisDataset(bucket, endpoint) as ais:
        train = ais.load_from_tar(f"train-{{00..{first - 1:02d}}}.tar").shuffle().batch(32)
        test = ais.load_from_tar(f"train-{{{first:02d}..{shards - 1:02d}}}.tar").batch(32)
        model = _model(classes)
        began = time.perf_counter()
        with warnings.catch_warnings():  # Keras remarks on it when a dataset's length is not known before its end
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(train, epochs=1, shuffle=False, verbose=0)
            seconds = time.perf_counter() - began
            found = model.evaluate(test, verbose=0, return_dict=True)
    console.data(f"an epoch in {duration(seconds)}; {found['accuracy']:.0%} of the test images are told right")


def _model(classes: int) -> Any:
    """It gets 224×224 pixels, 0 to 1, and a label."""
    import tensorflow as tf

    keras: Any = tf.keras
    keras.utils.set_random_seed(7)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((224, 224, 3)),
            layers.AveragePooling2D(4),
            layers.Conv2D(32, 5, strides=2, activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.GlobalMaxPooling2D(),
            layers.Dense(classes),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    return model
