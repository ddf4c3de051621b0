"""The buffer of a shuffle window. It holds the fields of large records, and is reused for every window.

If each field had its own memory, that memory would go back to the system after every window. For the next window,
the system would have to map new pages, and these page faults would take longer than reading the records. This module
must not do I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.records import Records

__all__ = ["WindowBuffer"]

_LARGE = 8 * KIB  # bytes of a record: copying a smaller record costs more than the page faults that the copy saves
_HUGE = 16 * MIB  # bytes of a field: copying a larger field costs more than the page faults that the copy saves


class WindowBuffer:
    """The records of one window. The caller adds records, permutes them once, and takes them out in the new order.

    Args:
        most_bytes: The size of the buffer. Fields that do not fit in it keep their own memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._buffer: memoryview | None = None
        self._used = 0
        self._records = Records()
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self._sizes)

    def clear(self) -> None:
        """Drop all records, before the next window is added."""
        self._records = Records()
        self._sizes.clear()
        self._used = 0

    def add(self, records: Records, size: int) -> None:
        """Add records that have `size` bytes together. Each record counts as having the average size."""
        count = len(records)
        if not count:
            return
        each = size // count
        if each >= _LARGE:
            records.convert(self._copied_in)
        self._records.extend(records)
        self._sizes += [each] * count

    def permute(self, order: Sequence[int]) -> None:
        """Permute the records: `order[i]` is the present number of the record that becomes record i."""
        self._records = self._records.permuted(order)
        self._sizes = [self._sizes[at] for at in order]

    def take(self, begin: int, most: int, most_bytes: int) -> Records:
        """Take out up to `most` records from number `begin` on. The record that reaches `most_bytes` is the last."""
        sizes = list(accumulate(self._sizes[begin : begin + most]))
        end = begin + min(len(sizes), bisect_left(sizes, most_bytes) + 1)
        taken = self._records.take_out(begin, end)
        if self._used:
            taken.convert(_copied_out)
        return taken

    def _copied_in(self, value: Any) -> Any:
        """Copy bytes into the buffer, and return a view of the copy.

        A value that is not bytes, is huge, or does not fit in the rest of the buffer is returned unchanged.
        """
        if type(value) is not bytes or len(value) > min(_HUGE, self._most - self._used):
            return value
        if self._buffer is None:
            self._buffer = np.empty(self._most, np.uint8).data  # pages that are never used take no memory
        begin, self._used = self._used, self._used + len(value)
        view = self._buffer[begin : self._used]
        view[:] = value
        return view


def _copied_out(value: Any) -> Any:
    """Return a copy of a view of the buffer, because the next window overwrites the buffer."""
    return bytes(value) if type(value) is memoryview else value
