"""Predicts the bytes that a reader needs after its next jumps, so that one request can fetch the bytes of many jumps.

A reader that skips large fields reads a few bytes around the beginning of each record, and jumps to the next record.
If an index states the offsets of the records, this module predicts a *prefetch window* around each offset. The
window is a range of bytes, which extends as far before and after the offset as the reader needed at the last records.
A wrong prediction costs a few bytes or another request, and never changes the bytes that the reader gets. This module
must not do I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ais_tar2tf.options import KIB

__all__ = ["PredictedWindows"]

_MAX_DISTANCE = 64 * KIB  # bytes from the beginning of a record to the start or the stop of its window
_MIN_AFTER = 1 * KIB  # bytes after the beginning of a record: the header of its first member, with a PAX header
_SHRINKING = 8  # `_before` shrinks by 1/8 at each record that needs fewer bytes


class PredictedWindows:
    """Prefetch windows around the records of one shard. The records begin at the ascending offsets `begins`."""

    def __init__(self, begins: Sequence[int]) -> None:
        self._begins = begins
        self._before = 0  # bytes of a window before the beginning of its record
        self._after = _MIN_AFTER  # bytes of a window from the beginning of its record on
        self._next = 0  # index in `begins` of the first record without a window

    def land(self, target: int) -> int | None:
        """Learn from a jump of the reader to the offset `target`.

        Return the stop of the window around the first record at or after `target`, or None if no record begins within
        64 KiB after `target`.
        """
        at = bisect_left(self._begins, target)
        self._next = max(self._next, at)
        if at == len(self._begins) or self._begins[at] - target > _MAX_DISTANCE:
            return None
        self._before = max(self._begins[at] - target, self._before - self._before // _SHRINKING)
        return self._begins[at] + self._after

    def grow(self) -> None:
        """Learn that the reader needed more bytes than a window had, and make the next windows longer."""
        self._after = min(2 * self._after, _MAX_DISTANCE)

    def following(self, position: int, most: int, most_bytes: int) -> list[tuple[int, int]]:
        """Return the next windows (start, stop) of records that begin after `position`. No window is returned twice.

        Args:
            position: The smallest offset at which the first window may start.
            most: The largest number of windows.
            most_bytes: The largest number of bytes of all windows together.
        """
        found: list[tuple[int, int]] = []
        self._next = max(self._next, bisect_right(self._begins, position))
        while self._next < len(self._begins) and len(found) < most:
            begin = self._begins[self._next]
            start, stop = max(position, begin - self._before), begin + self._after
            most_bytes -= stop - start
            if most_bytes < 0:
                break
            found.append((start, stop))
            position = stop
            self._next += 1
        return found
