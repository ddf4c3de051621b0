"""Where one file ends and the next one begins: a pure function of the records' sizes, in order, and of the bounds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.errors import OptionError

__all__ = ["DEFAULT_SIZE", "Boundaries", "Bounds", "DefaultSize", "bounds_of", "parse_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_LEAST_TEXT = 1_000  # bytes that text says without a unit: less than one record takes
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", re.IGNORECASE)


class DefaultSize(str):
    """A size that nobody asked for: a bound on records takes its place."""

    __slots__ = ()


DEFAULT_SIZE = DefaultSize("100MB")  # the guides' advice: large enough to stream, small enough to shuffle files


def parse_size(size: int | str) -> int:
    """Bytes, from a number or a text with a unit.

    >>> parse_size("100MB"), parse_size("1.5 KiB"), parse_size(7)
    (100000000, 1536, 7)
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        if found is None:
            raise OptionError(f"a size is a number of bytes, or a text such as '100MB' or '64MiB', not {size!r}")
        if size.strip().isdecimal() and int(size) < _LEAST_TEXT:  # it was meant in other units
            raise OptionError(f"{size} is a number of bytes; say a unit, as {size}MB")
        size = int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    return _whole(size, "a size is at least one byte")


def _whole(number: Any, rule: str) -> int:
    """A number of something: `1e8` is one, `0.5` and True are not."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if not isinstance(number, bool) and int(number) == number and number >= 1:
            return int(number)
    raise OptionError(f"{rule}, not {number!r}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one file. A record that alone is larger than `size` gets a file of its own."""

    size: int | None = None  # bytes, `overhead` included
    records: int | None = None
    overhead: int = 0  # bytes of a file that are no record's


def bounds_of(size: int | str | None, records: int | None, overhead: int = 0) -> Bounds:
    """The bounds that a user asked for; a number of records sets the default size aside."""
    if records is not None:
        records = _whole(records, "shard_records is a whole number, at least 1")
        size = None if isinstance(size, DefaultSize) else size
    return Bounds(None if size is None else parse_size(size), records, overhead)


class Boundaries:
    """What the file that is being filled holds, and how much more goes into it."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.records: int = 0
        self.size: int = 0

    def fitting(self, sizes: Sequence[int], begin: int = 0) -> int:
        """How many of `sizes[begin:]` go into this file, and puts them there; 0 when it is full."""
        count = len(sizes) - begin
        if self._bounds.records is not None:
            count = min(count, self._bounds.records - self.records)
        if self._bounds.size is None:
            self.size += sum(sizes[begin : begin + count])
        else:
            count = self._fitting_bytes(sizes, begin, count, self._bounds.size - self._bounds.overhead)
        self.records += count
        return count

    def _fitting_bytes(self, sizes: Sequence[int], begin: int, count: int, most: int) -> int:
        held = self.size
        total = held + sum(sizes[begin : begin + count])
        if total <= most:
            self.size = total
            return count
        for at in range(begin, begin + count):
            if held + sizes[at] > most and (at > begin or self.records):
                self.size = held
                return at - begin
            held += sizes[at]
        self.size = held
        return count

    def close(self) -> None:
        """The next file begins."""
        self.records = self.size = 0
