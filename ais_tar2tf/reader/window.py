"""The records that a shuffle holds: their large fields stand in one buffer that every window uses again. No I/O.

As objects of their own, 64 MB of records would be given back to the system with every window and faulted in again
with the next, which costs more than reading them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.records import Records

__all__ = ["Window"]

_LARGE = 8 * KIB  # bytes of a record: below this, handling its fields costs more than the faults that it saves
_HUGE = 16 * MIB  # bytes of a field: above this, a second copy of it costs more than the faults


class Window:
    """Some records, handed out in an order that is said when they are complete."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._buffer: memoryview | None = None
        self._used = 0
        self._records = Records()
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self._sizes)

    def clear(self) -> None:
        self._records = Records()
        self._sizes.clear()
        self._used = 0

    def add(self, records: Records, size: int) -> None:
        """Records that take `size` bytes in all; what each one takes of them is not told apart."""
        count = len(records)
        if not count:
            return
        each = size // count
        if each >= _LARGE:
            records.change(self._kept)
        self._records.extend(records)
        self._sizes += [each] * count

    def permute(self, order: Sequence[int]) -> None:
        self._records = self._records.permuted(order)
        self._sizes = [self._sizes[at] for at in order]

    def take(self, begin: int, most: int, most_bytes: int) -> Records:
        """Up to `most` records from the `begin`-th on, ending with the one that reaches `most_bytes`.

        They are held here no longer.
        """
        sizes = list(accumulate(self._sizes[begin : begin + most]))
        end = begin + min(len(sizes), bisect_left(sizes, most_bytes) + 1)
        taken = self._records.take_out(begin, end)
        if self._used:
            taken.change(_copied_out)
        return taken

    def _kept(self, value: Any) -> Any:
        """The same bytes in the buffer, while there is room."""
        if type(value) is not bytes or len(value) > min(_HUGE, self._most - self._used):
            return value
        if self._buffer is None:
            self._buffer = np.empty(self._most, np.uint8).data  # of this, what is never used is never there
        begin, self._used = self._used, self._used + len(value)
        place = self._buffer[begin : self._used]
        place[:] = value
        return place


def _copied_out(value: Any) -> Any:
    return bytes(value) if type(value) is memoryview else value
