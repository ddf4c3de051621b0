"""Memory for bytes: arrays that TensorFlow can take over, and freed memory that the process keeps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ais_tar2tf.options import KIB, MIB

__all__ = ["BATCHES", "LARGE_FIELDS", "aligned_array", "aligned_bytes", "keep_freed"]

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


def aligned_array(data: memoryview) -> tuple[Any, int]:
    """Return an array that TensorFlow takes over without a copy, and the index in it at which `data` begins.

    The array has up to 63 bytes more, which stand before `data` in the same buffer.
    """
    array, whole = np.frombuffer(data, np.uint8), data.obj
    shift = array.ctypes.data % _ALIGNMENT
    if not shift or not isinstance(whole, np.ndarray):
        return array, 0
    begin = array.ctypes.data - whole.ctypes.data - shift
    if begin < 0 or whole.dtype != np.uint8 or whole.ndim != 1:
        return array, 0
    return np.frombuffer(whole.data[begin : begin + shift + len(array)], np.uint8), shift


@functools.cache
def keep_freed(most: int) -> None:
    """Let malloc keep up to `most` freed bytes, instead of returning them to the system.

    After a large block is freed, glibc keeps up to twice the size of this block. So this function allocates and frees
    one block, which costs nothing, as its pages are never touched. Without glibc there is no effect.
    """
    bytearray(most // 2 - 64 * KIB)
