"""Memory for bytes: arrays that TensorFlow can take over, and freed memory that the process keeps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ais_tar2tf.options import KIB, MIB

__all__ = ["BATCHES", "LARGE_FIELDS", "aligned_bytes", "keep_freed"]

_ALIGNMENT = 64  # bytes: TensorFlow takes over an array whose memory begins at such an address, and copies any other

BATCHES = 16 * MIB
"""The limit for batches of records, of a few MB each. Without this setting, a record of 100 KB costs 100 µs of page
faults instead of 4 µs of copying."""

LARGE_FIELDS = 64 * MIB
"""The limit for fields of several MB. A sample of 6 MB is copied two or three times, and each copy into new memory
costs 1,500 page faults, more than all other work. This is the maximum: glibc ignores blocks above 32 MiB."""


def aligned_bytes(size: int) -> Any:
    """Return a new array of `size` bytes, which are not filled with zeros."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size]


@functools.cache
def keep_freed(most: int) -> None:
    """Let malloc keep up to `most` freed bytes, instead of returning them to the system.

    After a large block is freed, glibc keeps up to twice the size of this block. So this function allocates and frees
    one block, which costs nothing, as its pages are never touched. Without glibc there is no effect.
    """
    bytearray(most // 2 - 64 * KIB)
