"""Train a small Keras model on radar data like TorNet's, streamed from tar shards.

    python examples/tornet_training.py                                # generates data, serves them, trains
    python examples/tornet_training.py --train URL --test URL         # on existing shards

A sample has twelve channels (six variables at two tilts) of 120 × 240 gates. Tornadoes are rare, so their samples get
a larger weight, and the metric is the area under the ROC curve instead of accuracy. Needs the extra `tornet`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import tornet
from ais_tar2tf.tornet.small_data import make

_BATCH = 8
_WEIGHT = 3.0  # of a tornado; the small data has three times as many other samples
_FEATURES = ("DBZ", "VEL", "KDP", "RHOHV", "ZDR", "WIDTH", "label")


@contextmanager
def made_data(samples: int) -> Iterator[tuple[str, str, str]]:
    """Generate shards and serve them. Yield the templates for training and testing, and the endpoint."""
    with (
        tempfile.TemporaryDirectory() as data,
        tempfile.TemporaryDirectory() as buckets,
        t2t.serve(buckets) as server,
    ):
        make(data, samples, years=(2013,), seed=3)
        tornet.pack(data, f"{buckets}/tornet", shards=4, progress=False)
        yield "ais://tornet/train-2013-{0..3}.tar", "ais://tornet/test-2013-{0..3}.tar", server.url


def dataset(urls: str, endpoint: str | None, *, tilt_last: bool, training: bool) -> tf.data.Dataset:
    """Return batches of channels, labels and weights."""
    samples = tornet.stream(
        urls, features=_FEATURES, endpoint=endpoint, shuffle=64 if training else None, seed=1 if training else None
    )
    pairs = samples.map(tornet.pair(tilt_last=tilt_last), tf.data.AUTOTUNE)
    return pairs.map(tornet.weighted(_WEIGHT)).batch(_BATCH).prefetch(tf.data.AUTOTUNE)


def model(*, tilt_last: bool) -> tf.keras.Model:
    """Return a model of two convolutions and a maximum over the frame.

    Missing values (−3) are replaced by the middle of the range, because their edges would outshine every echo.
    """
    layers = tf.keras.layers
    channels = tf.keras.Input((120, 240, 12) if tilt_last else (12, 120, 240))
    x = channels if tilt_last else layers.Permute((2, 3, 1))(channels)  # the layout that CPUs support
    x = layers.AveragePooling2D(2)(tf.keras.ops.where(x < -1, 0.0, (x - 0.5) * 4))
    for _ in range(2):
        x = layers.MaxPooling2D(2)(layers.Conv2D(16, 3, padding="same", activation="relu")(x))
    answer = layers.Dense(1, activation="sigmoid")(layers.GlobalMaxPooling2D()(x))
    built = tf.keras.Model(channels, answer)
    built.compile(
        tf.keras.optimizers.Adam(3e-3), "binary_crossentropy", weighted_metrics=[tf.keras.metrics.AUC(name="auc")]
    )
    return built


def train(urls: tuple[str, str], endpoint: str | None, epochs: int, *, tilt_last: bool) -> None:
    """Fit, evaluate, and print one line of results."""
    tf.keras.utils.set_random_seed(1)
    fitted = model(tilt_last=tilt_last)
    began = time.perf_counter()
    fitted.fit(dataset(urls[0], endpoint, tilt_last=tilt_last, training=True), epochs=epochs, verbose=0)
    seconds = time.perf_counter() - began
    before = fitted.evaluate(
        dataset(urls[0], endpoint, tilt_last=tilt_last, training=False), return_dict=True, verbose=0
    )
    after = fitted.evaluate(
        dataset(urls[1], endpoint, tilt_last=tilt_last, training=False), return_dict=True, verbose=0
    )
    order = "azimuth, range, channels" if tilt_last else "channels, azimuth, range"
    areas = f"AUC {before['auc']:.2f}, test AUC {after['auc']:.2f}"
    print(f"({order}): {epochs} epochs in {seconds:.0f} s, {areas}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", metavar="URL", help="template of shards as tornet.pack writes them")
    parser.add_argument("--test", metavar="URL")
    parser.add_argument("--endpoint", help="endpoint of AIStore, for ais:// (default: AIS_ENDPOINT)")
    parser.add_argument("--samples", type=int, default=64, help="number of samples to generate")
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    if (given.train is None) != (given.test is None):
        parser.error("--train and --test go together")
    if given.train is not None:
        for tilt_last in (True, False):
            train((given.train, given.test), given.endpoint, given.epochs, tilt_last=tilt_last)
        return
    with made_data(given.samples) as (training, testing, endpoint):
        for tilt_last in (True, False):
            train((training, testing), endpoint, given.epochs, tilt_last=tilt_last)


if __name__ == "__main__":
    main()
