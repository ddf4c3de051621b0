"""Which bytes behind the next jumps will be wanted: guessed, so that they can be asked for together. Pure.

A reader that leaves large fields out lands on *islands* between them. Where an index says at which offsets records
begin, an island lies around each: as far before it and behind it as the last ones did. A wrong guess costs a few
bytes or another request; what is delivered depends on where the reader really jumps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ais_tar2tf.options import KIB

__all__ = ["Islands"]

_FARTHEST = 64 * KIB  # from the beginning of a record; what is farther away belongs to no island
_LEAST_BEHIND = 1 * KIB  # the header of the next member, and what a PAX header may add
_FORGETTING = 8  # an island that reached far is forgotten by so much of it with each that does not


class Islands:
    """Around the beginnings of records of one shard."""

    def __init__(self, begins: Sequence[int]) -> None:
        self._begins = begins
        self._before = 0
        self._behind = _LEAST_BEHIND
        self._next = 0  # the first beginning around which nothing was planned

    def land(self, target: int) -> int | None:
        """The reader jumped there; where the island ends, if it is one."""
        at = bisect_left(self._begins, target)
        self._next = max(self._next, at)
        if at == len(self._begins) or self._begins[at] - target > _FARTHEST:
            return None
        self._before = max(self._begins[at] - target, self._before - self._before // _FORGETTING)
        return self._begins[at] + self._behind

    def reach_farther(self) -> None:
        """The reader went on behind an island."""
        self._behind = min(2 * self._behind, _FARTHEST)

    def ahead(self, position: int, most: int, most_bytes: int) -> list[tuple[int, int]]:
        """The next islands, none of which was given before."""
        found: list[tuple[int, int]] = []
        self._next = max(self._next, bisect_right(self._begins, position))
        while self._next < len(self._begins) and len(found) < most:
            begin = self._begins[self._next]
            start, stop = max(position, begin - self._before), begin + self._behind
            most_bytes -= stop - start
            if most_bytes < 0:
                break
            found.append((start, stop))
            position = stop
            self._next += 1
        return found
