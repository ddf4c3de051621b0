"""Calls the operation of a library with many inputs: `python -m tests.native.cut_inputs LIBRARY FOLDER`.

A test runs this program with a library that was built with the sanitizers of addresses and of undefined behaviour.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ais_tar2tf.base.file_bytes import FileBytes

_CALLS = 1500
_EDGES = (-(2**63), -1, 0, 1, 299, 300, 900, 901, 1899, 1900, 2**62, 2**63 - 1)


def main(library: str, folder: str) -> None:
    operation = tf.load_op_library(library).ais_tar2tf_cut
    chance = random.Random(1)
    content = [chance.randbytes(300) for _ in range(3)]
    path = Path(folder, "file")
    path.write_bytes(chance.randbytes(1000))
    everything = b"".join(content) + path.read_bytes()
    file, blocks = FileBytes(path, "file"), [np.frombuffer(each, np.uint8) for each in content]
    good = bad = 0
    for _ in range(_CALLS):
        shape = (2, chance.randint(0, 4))
        starts, sizes = _numbers(chance, shape), _numbers(chance, shape)
        starts += np.array(chance.choice((0, 300, 600, 900)), np.int64)
        files = file.numbers[None] if chance.random() < 0.9 else _numbers(chance, (chance.randint(0, 2), 10))
        try:
            is_read, fields = operation(blocks, files, starts, sizes, F=2)
        except tf.errors.InvalidArgumentError:
            bad += 1
            continue
        if is_read:
            good += 1
            for row, field in enumerate(fields):
                expected = [everything[at : at + size] for at, size in zip(starts[row], sizes[row], strict=True)]
                assert field.numpy().tolist() == expected
    print(good, bad)
    assert min(good, bad) > _CALLS // 10
    _cut_in_threads(operation, Path(folder, "large"))


def _cut_in_threads(operation: Any, path: Path) -> None:
    """Cut so many bytes that several threads read them, from a whole file and from one that became shorter."""
    content = random.Random(2).randbytes(5_000_000)
    path.write_bytes(content)
    file, empty = FileBytes(path, "large"), [np.empty(0, np.uint8)]
    starts = np.arange(0, 5_000_000, 100_000)[None]
    sizes = np.full_like(starts, 99_999)
    is_read, (field,) = operation(empty, file.numbers[None], starts, sizes, F=1)
    assert is_read
    assert field.numpy().tolist() == [content[at : at + 99_999] for at in starts[0]]
    os.truncate(path, 2_600_000)
    is_read, _ = operation(empty, file.numbers[None], starts, sizes, F=1)
    assert not is_read


def _numbers(chance: random.Random, shape: tuple[int, int]) -> np.ndarray:
    """Return random numbers. Most of them can be the start or the size of a field, and some are `_EDGES`."""
    count = shape[0] * shape[1]
    drawn = [chance.choice(_EDGES) if chance.random() < 0.15 else chance.randint(0, 250) for _ in range(count)]
    return np.array(drawn, np.int64).reshape(shape)


if __name__ == "__main__":
    main(*sys.argv[1:])
