"""What malloc does with large blocks that were freed."""

from __future__ import annotations

import functools

from ais_tar2tf.options import KIB, MIB

__all__ = ["keep_large_blocks"]

_LARGEST = 32 * MIB  # glibc learns from no larger block


@functools.cache
def keep_large_blocks() -> None:
    """Let malloc keep up to 64 MiB that were freed, instead of giving them back and faulting them in again.

    A sample of 6 MB is copied two or three times on its way, and each fresh copy costs 1,500 page faults, more than
    all the rest. glibc learns from what is freed: after one block of nearly 32 MiB (never touched, so it costs
    nothing) it keeps twice as much. Elsewhere this does nothing.
    """
    bytearray(_LARGEST - 64 * KIB)
