"""Train a Keras model on images in tar shards of an object store, without a copy on disk.

    python examples/imagenet_in_memory.py
    python examples/imagenet_in_memory.py --endpoint http://localhost:51080 --bucket imagenet \\
        --template "train-{000..146}.tar" --test-template "val-{00..06}.tar" --classes 1000

Without a bucket, this program generates shards of coloured shapes and serves them with the embedded AIStore server.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ais_tar2tf as t2t


@contextmanager
def _muted() -> Iterator[None]:
    """Discard standard error: TensorFlow prints remarks about the machine when it is imported, at any log level."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
with _muted():
    import keras
    import numpy as np
    import tensorflow as tf

SHARDS, RECORDS, SIZE = 8, 256, 64  # generated shards, images per shard, width and height in pixels
CLASSES = 10


def main() -> None:
    options = _options()
    if options.bucket:
        run(options, options.endpoint, options.bucket)
        return
    with _made_bucket() as (endpoint, bucket):
        run(options, endpoint, bucket)
        _show_an_error(endpoint, bucket)


def run(options: argparse.Namespace, endpoint: str | None, bucket: str) -> None:
    """Train and evaluate on a bucket."""
    with t2t.AisDataset(bucket, endpoint) as ais:
        train = ais.load_from_tar(options.template).shuffle().batch(options.batch)
        test = ais.load_from_tar(options.test_template).batch(options.batch)

        # Keras warns at the end of every dataset of unknown length.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model = _model(options.classes)
        print(f"Training on {options.template} of bucket {bucket}, {options.epochs} epoch(s)")
        began = time.perf_counter()
        history = model.fit(train, epochs=options.epochs, shuffle=False, verbose=0).history
        _report("trained on", sum(history["records"]), began, history["loss"][-1], history["accuracy"][-1])

        print(f"Evaluating on {options.test_template}")
        began = time.perf_counter()
        found = model.evaluate(test, verbose=0, return_dict=True)
        _report("evaluated", found["records"], began, found["loss"], found["accuracy"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--endpoint", help="AIStore's proxy, as http://localhost:51080 (default: AIS_ENDPOINT)")
    parser.add_argument("--bucket", help="the bucket (default: generate shards and serve them)")
    parser.add_argument("--template", default="train-{0..3}.tar.gz", help="shards to train on (%(default)s)")
    parser.add_argument("--test-template", default="train-{4..7}.tar.gz", help="shards to test on (%(default)s)")
    parser.add_argument(
        "--classes", type=int, default=CLASSES, help="number of classes; labels start at 0 (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    if options.endpoint and not options.bucket:
        parser.error("--endpoint needs a --bucket")
    return options


def _report(what: str, records: float, began: float, loss: float, accuracy: float) -> None:
    seconds = time.perf_counter() - began
    rate = f"{records:,.0f} records in {seconds:.1f} s ({records / seconds:,.0f} records/s)"
    print(f"  {what} {rate}: loss {loss:.3f}, accuracy {accuracy:.1%}")


# The model.


class Records(keras.metrics.Sum):
    """A metric that counts records. Keras itself counts only batches."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002  # Keras's
        super().update_state(keras.ops.ones_like(y_true, dtype="float32"))


def _model(classes: int) -> keras.Model:
    """Return a model small enough for any machine, for 224×224 pixels from 0 to 1 as `load_from_tar` yields them."""
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
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy", Records(name="records")])
    return model


# The generated shards: pictures of shapes, whose colour and form determine the class.


@contextmanager
def _made_bucket() -> Iterator[tuple[str, str]]:
    """Yield the endpoint of a server in this process, and the name of its bucket."""
    bucket = "shapes"
    with tempfile.TemporaryDirectory() as folder, t2t.serve(folder) as server:
        Path(folder, bucket).mkdir()
        for number in range(SHARDS):
            Path(folder, bucket, f"train-{number}.tar.gz").write_bytes(_shard(number))
        print(f"Made {SHARDS} shards of {RECORDS} images, served at {server.url}")
        yield server.url, bucket


def _shard(number: int) -> bytes:
    """Return a tar.gz of records with an image in `jpg` and its class in `cls`."""
    random = np.random.default_rng(number)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for index in range(RECORDS):
            label = int(random.integers(CLASSES))
            jpeg = tf.io.encode_jpeg(_picture(label, random), quality=90).numpy()
            for field, data in (("jpg", jpeg), ("cls", b"%d" % label)):
                member = tarfile.TarInfo(f"{number:02d}/{index:04d}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _picture(label: int, random: np.random.Generator) -> np.ndarray:
    """Draw a shape on grey noise. Two classes share a form, and each class has its own hue."""
    y, x = np.mgrid[:SIZE, :SIZE] - random.uniform(0.35, 0.65, (2, 1, 1)) * SIZE
    radius = random.uniform(0.2, 0.3) * SIZE
    shape = _shape(label % 5, np.abs(x), np.abs(y), radius)
    hue = 2 * np.pi * (label / CLASSES + random.uniform(-0.03, 0.03))
    colour = 128 + 110 * np.cos(hue + np.array([0, 2, 4]) * np.pi / 3)
    pixels = random.normal(110, 12, (SIZE, SIZE, 3))
    pixels[shape] = colour + random.normal(0, 8, (int(shape.sum()), 3))
    return pixels.clip(0, 255).astype(np.uint8)


def _shape(form: int, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Return the mask of the shape's pixels. `x` and `y` are distances from its centre."""
    distance = np.hypot(x, y)
    return [
        distance < radius,  # a disc
        (distance < radius) & (distance > 0.7 * radius),  # a ring
        (np.maximum(x, y) < radius) & (np.minimum(x, y) < 0.25 * radius),  # a cross
        (y < radius) & (y % (0.5 * radius) < 0.25 * radius) & (x < radius),  # horizontal stripes
        (x < radius) & (x % (0.5 * radius) < 0.25 * radius) & (y < radius),  # vertical stripes
    ][form]


def _show_an_error(endpoint: str, bucket: str) -> None:
    print("A missing shard is an error, never a shorter dataset:")
    try:
        t2t.AisDataset(bucket, endpoint).load_from_tar(f"train-{SHARDS}.tar.gz")
    except t2t.errors.ShardNotFound as error:
        print(f"  {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
