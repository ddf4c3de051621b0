"""Let the cluster select fields, augment images and shuffle records. The embedded server stands for the cluster.

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
    # On a cluster: build an image from transformer.containerfile(), then etl.start(transformer.spec(image=…)).
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
    t2t.pack(generate(60), f"{bucket}/train-{{}}.tar", shard_size="1MB")


def select() -> None:
    """Read the labels only. The cluster sends their members and leaves out the pictures."""
    with t2t.open("ais://pictures/train-*.tar") as src:
        labels = src.select("cls")
        count = sum(1 for _ in labels.records())
        extracted = labels.extracted
        print(f"{count} labels: received {extracted.member_bytes:,} of {extracted.whole_bytes:,} bytes")


def augment() -> None:
    """Rotate the pictures in this process, then in the cluster, and compare."""
    with t2t.AisDataset("pictures", conversions=CONVERSIONS, selections=SELECTIONS) as ais:
        here = list(ais.load("train-*.tar", remote_exec=False).as_numpy_iterator())
        there = list(ais.load("train-*.tar").as_numpy_iterator())
        same = all(map(alike, here, there))
        print(f"{len(there)} pictures turned {ais.executed.partition(':')[0]}, the same as here: {same}")


def alike(ours: tuple[np.ndarray, ...], theirs: tuple[np.ndarray, ...]) -> bool:
    return all(map(np.array_equal, ours, theirs))


def shuffled(endpoint: str) -> None:
    """Shuffle records into new shards. The embedded server has no dSort, so `local=True` shuffles in this process."""
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


def generate(count: int):
    random = np.random.default_rng(0)
    for number in range(count):
        pixels = random.integers(0, 255, (64, 64, 3), np.uint8)
        yield {"__key__": f"{number:04d}", "png": tf.io.encode_png(pixels).numpy(), "cls": str(number % 10)}


if __name__ == "__main__":
    main()
