"""What malloc does with memory that was freed."""

from __future__ import annotations

import functools

from ais_tar2tf.options import KIB, MIB

__all__ = ["BATCHES", "LARGE_FIELDS", "keep_freed"]

BATCHES = 16 * MIB
"""Records come and go in batches of a few MB. Without this, a record of 100 KB costs 100 µs of page faults instead of
4 µs of copying."""

LARGE_FIELDS = 64 * MIB
"""A sample of 6 MB is copied two or three times on its way, and each fresh copy costs 1,500 page faults, more than
all the rest; glibc learns from no block above 32 MiB."""


@functools.cache
def keep_freed(most: int) -> None:
    """Let malloc keep up to `most` bytes that were freed, instead of giving them back and faulting them in again.

    By default glibc returns them to the system at once. It learns from what is freed: after one block (never touched,
    so it costs nothing) it keeps twice as much. Elsewhere this does nothing.
    """
    bytearray(most // 2 - 64 * KIB)
