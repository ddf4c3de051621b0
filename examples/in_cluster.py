"""Work where the data is: a selection, an augmentation, a shuffle; on the embedded server, as on a cluster.

python examples/in_cluster.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import ais_tar2tf as t2t

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

from ais_tar2tf.cluster import shuffle
from ais_tar2tf.ops import Convert, Decode, Rotate

CONVERSIONS = [Decode("png", channels=3), Rotate("png", 90), Convert("cls", "int32")]
SELECTIONS = ["png", "cls"]


def main() -> None:
    # On a cluster: cluster.etl.start(transformer.spec(image=…)), of an image made from transformer.containerfile().
    transformer = t2t.AisDataset("pictures", "any", conversions=CONVERSIONS, selections=SELECTIONS).transformer()
    with tempfile.TemporaryDirectory() as folder, transformer.serve() as service:
        bucket = Path(folder) / "pictures"
        bucket.mkdir()
        with t2t.serve(folder, transformers={transformer.name: service.url}) as cluster:
            os.environ["AIS_ENDPOINT"] = cluster.url
            fill(bucket)
            select()
            augment()
            shuffled(cluster.url)


def fill(bucket: Path) -> None:
    t2t.pack(made(60), f"{bucket}/train-{{}}.tar", shard_size="1MB")


def select() -> None:
    """The labels alone: their members come, the pictures stay where they are."""
    with t2t.open("ais://pictures/train-*.tar") as src:
        labels = src.select("cls")
        count = sum(1 for _ in labels.records())
        told = labels.extracted
        print(f"{count} labels: {told.member_bytes:,} bytes came of {told.whole_bytes:,}")


def augment() -> None:
    """The same dataset, made here and made there."""
    with t2t.AisDataset("pictures", conversions=CONVERSIONS, selections=SELECTIONS) as ais:
        here = list(ais.load("train-*.tar", remote_exec=False).as_numpy_iterator())
        there = list(ais.load("train-*.tar").as_numpy_iterator())
        same = all(map(alike, here, there))
        print(f"{len(there)} pictures turned {ais.executed.partition(':')[0]}, the same as here: {same}")


def alike(ours: tuple[np.ndarray, ...], theirs: tuple[np.ndarray, ...]) -> bool:
    return all(map(np.array_equal, ours, theirs))


def shuffled(endpoint: str) -> None:
    """By dSort where there is one; this server has none, so `local` is asked for."""
    urls = shuffle(
        "ais://pictures/train-*.tar",
        "ais://pictures/shuffled-{00..99}.tar",
        shard_size="200KB",
        endpoint=endpoint,
        local=True,
    )
    with t2t.open(urls) as src:
        keys = [record["__key__"] for record in src.records()]
    print(f"{len(keys)} records in {len(urls)} new shards, each once: {len(set(keys)) == len(keys)}")


def made(count: int):
    random = np.random.default_rng(0)
    for number in range(count):
        pixels = random.integers(0, 255, (64, 64, 3), np.uint8)
        yield {"__key__": f"{number:04d}", "png": tf.io.encode_png(pixels).numpy(), "cls": str(number % 10)}


if __name__ == "__main__":
    main()
