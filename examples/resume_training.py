"""Stop in the middle of a shuffled epoch, and resume with exactly the remaining records.

python examples/resume_training.py
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import ais_tar2tf as t2t

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

RECORDS, BATCH = 240, 16


def dataset() -> Any:
    """Return a shuffled dataset. Its order depends on the seed, so a checkpoint needs only a position."""
    source = t2t.open("memory://resumed/train-{0..3}.tar")
    shuffle = t2t.options.Shuffle(window=64, shards=2, seed=7)
    return source.dataset(number_of, shuffle=shuffle, batch=BATCH).prefetch(2)


def number_of(record: Any) -> Any:
    return tf.strings.to_number(record["cls"], tf.int32)


def main() -> None:
    rows = ({"__key__": f"{number:06d}", "cls": str(number)} for number in range(RECORDS))
    t2t.pack(rows, "memory://resumed/train-{}.tar", shard_size=None, shard_records=RECORDS // 4, create=True)
    whole = [batch.numpy().tolist() for batch in dataset()]

    with tempfile.TemporaryDirectory() as folder:
        iterator = iter(dataset())
        begun = [next(iterator).numpy().tolist() for _ in range(5)]
        saved = tf.train.Checkpoint(iterator=iterator).save(f"{folder}/position")
        print(f"stopped after {len(begun)} batches")

        # This could be another process.
        iterator = iter(dataset())
        tf.train.Checkpoint(iterator=iterator).restore(saved)
        rest = [batch.numpy().tolist() for batch in iterator]

    print(f"resumed with {len(rest)} batches")
    print(f"nothing repeated, nothing lost: {begun + rest == whole}")


if __name__ == "__main__":
    main()
