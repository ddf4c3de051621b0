"""`demo`: make a bucket, serve it, run five verbs on it, and train a model."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ais_tar2tf.cli.command import Stopped, verb
from ais_tar2tf.cli.console import Console, duration

__all__ = ["demo"]

BUCKET, SHARDS, RECORDS = "shapes", 8, 128  # small enough to be made in seconds
_SIDE = 48  # pixels
_CLASSES = 10
_TEST_SHARDS = 2


@verb(has_json=False)
def demo(
    console: Console,
    folder: Annotated[
        Path, typer.Argument(help="the folder for the bucket and all results; it is kept", metavar="DIR")
    ] = Path("ais-tar2tf-demo"),
    train: Annotated[bool, typer.Option(help="train a small model, which takes half a minute")] = True,
) -> None:
    """Make a small bucket, serve it, and try five verbs on it.

    The demo lists the bucket, inspects it, makes a card of it, converts it, verifies the conversion, and trains a
    model on it. It needs neither a cluster nor a network. Everything that it writes is kept in DIR.

    Example:
      ais-tar2tf demo
    """
    try:
        _run(console, folder, train=train)
    except KeyboardInterrupt:
        raise Stopped(f"what was made stays in {folder}", "the same command begins again", in_part=False) from None


def _run(console: Console, folder: Path, *, train: bool) -> None:
    from ais_tar2tf.cli.verbs.card import card
    from ais_tar2tf.cli.verbs.convert import convert
    from ais_tar2tf.cli.verbs.inspect import inspect
    from ais_tar2tf.cli.verbs.ls import ls
    from ais_tar2tf.cli.verbs.verify import verify
    from ais_tar2tf.cluster.server import serve

    buckets, page, records = folder / "buckets", folder / "card.html", folder / "records"
    (buckets / BUCKET).mkdir(parents=True, exist_ok=True)
    with serve(buckets) as server:
        console.note(f"an AIStore of your own: {buckets} at {server.url}, until this ends\n")
        _fill(console, buckets, server.url)
        url = f"ais://{BUCKET}/train-{{00..{SHARDS - 1:02d}}}.tar"
        _step(console, f"ais-tar2tf ls ais://{BUCKET}")
        ls([f"ais://{BUCKET}"], endpoint=server.url, quiet=console.quiet)
        _step(console, f"ais-tar2tf inspect '{url}'")
        inspect([url], endpoint=server.url, quiet=console.quiet)
        _step(console, f"ais-tar2tf card '{url}' -o {page}")
        card([url], out=page, endpoint=server.url, quiet=console.quiet)
        _step(console, f"ais-tar2tf convert '{url}' {records}")
        convert([url], str(records), endpoint=server.url, workers=1, quiet=True)
        _step(console, f"ais-tar2tf verify {records}")
        verify(str(records), quiet=console.quiet)
        if train:
            _step(console, f"python  # AisDataset({BUCKET!r}, …).load_from_tar(…), and Keras's fit")
            train_on(console, server.url)
    console.note(f"\nGo on:  ais-tar2tf serve {buckets}    and open {page} in a browser")


def _step(console: Console, what: str) -> None:
    console.data(f"\n{console.styled('$', 'dim')} {console.styled(what, 'bold')}")


def _fill(console: Console, buckets: Path, endpoint: str) -> None:
    """Write the demo's shards, always the same, unless an earlier demo has written them."""
    from ais_tar2tf.recordfiles.packing.packer import pack

    if len(list((buckets / BUCKET).glob("train-*.tar"))) == SHARDS:
        console.note("the shards of an earlier demo are there")
        return
    console.note(f"making {SHARDS} shards of {RECORDS} images")
    template = f"ais://{BUCKET}/train-{{:02d}}.tar"
    pack(
        _records(),
        template,
        shard_size=None,
        shard_records=RECORDS,
        exists="replace",
        progress=False,
        endpoint=endpoint,
    )


def _records() -> Iterator[dict[str, Any]]:
    import numpy as np

    from ais_tar2tf.cli.card import png

    random = np.random.RandomState(7)
    for number in range(SHARDS * RECORDS):
        label = int(random.randint(_CLASSES))
        yield {
            "__key__": f"{number // RECORDS:02d}/{number:04d}",
            "png": png(_picture(label, random)),
            "cls": b"%d" % label,
        }


def _picture(label: int, random: Any) -> Any:
    """Return an image of the class `label`: its form and hue, somewhere on a grey, noisy background."""
    import numpy as np

    y, x = np.mgrid[:_SIDE, :_SIDE] - random.uniform(0.35, 0.65, (2, 1, 1)) * _SIDE
    x, y, radius = np.abs(x), np.abs(y), random.uniform(0.2, 0.3) * _SIDE
    distance = np.hypot(x, y)
    inside = (
        distance < radius,
        (distance < radius) & (distance > 0.6 * radius),
        (np.maximum(x, y) < radius) & (np.minimum(x, y) < 0.3 * radius),
        (np.maximum(x, y) < radius) & (y % (0.5 * radius) < 0.25 * radius),
        (np.maximum(x, y) < radius) & (x % (0.5 * radius) < 0.25 * radius),
    )[label % 5]
    hue = 2 * math.pi * (label / _CLASSES + random.uniform(-0.03, 0.03))
    pixels = random.normal(110, 12, (_SIDE, _SIDE, 3))
    pixels[inside] = 128 + 110 * np.cos(hue + np.array([0, 2, 4]) * math.pi / 3)
    return pixels.clip(0, 255).astype(np.uint8)


def train_on(console: Console, endpoint: str) -> None:
    """Train a small Keras model for an epoch with `load_from_tar`, and print how accurate it is.

    Args:
        console: Prints the duration of the epoch and the accuracy.
        endpoint: The URL of the server.
    """
    from ais_tar2tf.cli.silence import import_tensorflow
    from ais_tar2tf.cluster.client import AisDataset

    console.note("importing TensorFlow takes some seconds")
    import_tensorflow(keras=True)
    training_shards = SHARDS - _TEST_SHARDS
    with AisDataset(BUCKET, endpoint) as ais:
        train = ais.load_from_tar(f"train-{{00..{training_shards - 1:02d}}}.tar").shuffle().batch(32)
        test = ais.load_from_tar(f"train-{{{training_shards:02d}..{SHARDS - 1:02d}}}.tar").batch(32)
        model = _model()
        began = time.perf_counter()
        with warnings.catch_warnings():  # Keras warns because the dataset's length is not known
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(train, epochs=1, shuffle=False, verbose=0)
            seconds = time.perf_counter() - began
            metrics = model.evaluate(test, verbose=0, return_dict=True)
    console.data(
        f"an epoch in {duration(seconds)}; {metrics['accuracy']:.0%} of the test images are classified correctly"
    )


def _model() -> Any:
    """Return a classifier of images with 224×224 pixels from 0 to 1."""
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
            layers.Dense(_CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    return model
