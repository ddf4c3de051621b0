"""`demo`: from nothing to a trained model, with a bucket that it makes and serves; each step is a verb of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.verbs import Quiet, Stopped, Verbose, verb

__all__ = ["demo"]

BUCKET, SHARDS, RECORDS = "shapes", 8, 128  # small enough to be made in seconds
_SIDE = 48  # pixels
_CLASSES = 10
_TEST_SHARDS = 2


@verb
def demo(
    folder: Annotated[Path, typer.Argument(help="where the bucket is made; it stays", metavar="DIR")] = Path(
        "ais-tar2tf-demo"
    ),
    train: Annotated[bool, typer.Option(help="train a small model, which takes half a minute")] = True,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show all of it on a bucket that it makes and serves.

    It lists, inspects, pictures, converts and verifies the bucket, and trains on it. It needs no cluster and no
    network. What it makes stays in DIR.
    """
    try:
        _show(Console(quiet=quiet, verbose=verbose), folder, train=train, quiet=quiet)
    except KeyboardInterrupt:
        raise Stopped(f"what was made stays in {folder}", "the same command begins again", in_part=False) from None


def _show(console: Console, folder: Path, *, train: bool, quiet: bool) -> None:
    from ais_tar2tf.cli.carding import card
    from ais_tar2tf.cli.converting import convert
    from ais_tar2tf.cli.inspecting import inspect
    from ais_tar2tf.cli.listing import ls
    from ais_tar2tf.cli.verifying import verify
    from ais_tar2tf.server import serve

    buckets, page, records = folder / "buckets", folder / "card.html", folder / "records"
    (buckets / BUCKET).mkdir(parents=True, exist_ok=True)
    with serve(buckets) as server:
        console.note(f"an AIStore of your own: {buckets} at {server.url}, until this ends\n")
        _fill(console, buckets, server.url)
        url = f"ais://{BUCKET}/train-{{00..{SHARDS - 1:02d}}}.tar"
        _step(console, f"ais-tar2tf ls ais://{BUCKET}")
        ls([f"ais://{BUCKET}"], endpoint=server.url, quiet=quiet)
        _step(console, f"ais-tar2tf inspect '{url}'")
        inspect([url], endpoint=server.url, quiet=quiet)
        _step(console, f"ais-tar2tf card '{url}' -o {page}")
        card([url], out=page, endpoint=server.url, quiet=quiet)
        _step(console, f"ais-tar2tf convert '{url}' {records}")
        convert([url], str(records), endpoint=server.url, workers=1, quiet=True)
        _step(console, f"ais-tar2tf verify {records}")
        verify(str(records), quiet=quiet)
        if train:
            from ais_tar2tf.cli.demo_training import train_on

            _step(console, f"python  # AisDataset({BUCKET!r}, …).load_from_tar(…), and Keras's fit")
            train_on(console, server.url, BUCKET, SHARDS, _TEST_SHARDS, _CLASSES)
    console.note(f"\nGo on:  ais-tar2tf serve {buckets}    and open {page} in a browser")


def _step(console: Console, what: str) -> None:
    console.data(f"\n{console.styled('$', 'dim')} {console.styled(what, 'bold')}")


def _fill(console: Console, buckets: Path, endpoint: str) -> None:
    """The same shards every time; those of an earlier demo are used again."""
    from ais_tar2tf.packing.packer import pack

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

    from ais_tar2tf.card import png

    random = np.random.RandomState(7)
    for number in range(SHARDS * RECORDS):
        label = int(random.randint(_CLASSES))
        yield {
            "__key__": f"{number // RECORDS:02d}/{number:04d}",
            "png": png(_picture(label, random)),
            "cls": b"%d" % label,
        }


def _picture(label: int, random: Any) -> Any:
    """A disc, ring, cross or stripes somewhere on a grey, noisy ground; form and hue tell the class."""
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
