"""The boundaries between output files: the bounds of a file, and `FillLevel`, which decides when a file is full.

The boundaries depend on the sizes of the records and on the bounds alone. This module must not do I/O.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.errors import OptionError

__all__ = ["DEFAULT_SIZE", "Bounds", "DefaultSize", "FillLevel", "bounds_of", "parse_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_MIN_UNITLESS = 1_000  # bytes; the user has probably forgotten the unit of a smaller number in a text
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", re.IGNORECASE)


class DefaultSize(str):
    """The default value of an option for a file's size. It applies only if no number of records is given."""

    __slots__ = ()


DEFAULT_SIZE = DefaultSize("100MB")
"""TensorFlow's guides advise this size: files are large enough to stream, and small enough to shuffle."""


def parse_size(size: int | str) -> int:
    """Parse a number of bytes: a number, or a text with a unit.

    Raises:
        OptionError: The size is malformed or less than one byte.

    >>> parse_size("100MB"), parse_size("1.5 KiB"), parse_size(7)
    (100000000, 1536, 7)
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        if found is None:
            raise OptionError(f"a size is a number of bytes, or a text such as '100MB' or '64MiB', not {size!r}")
        if size.strip().isdecimal() and int(size) < _MIN_UNITLESS:
            raise OptionError(f"{size} is a number of bytes; say a unit, as {size}MB")
        size = int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    return _whole(size, "a size is at least one byte")


def _whole(number: Any, rule: str) -> int:
    """Return a whole number, such as `1e8`, as an int. Refuse `0.5`, True and 0 by an error that states `rule`."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if not isinstance(number, bool) and int(number) == number and number >= 1:
            return int(number)
    raise OptionError(f"{rule}, not {number!r}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of each file. A record larger than `size` gets a file of its own."""

    size: int | None = None  # bytes, including `overhead`
    records: int | None = None
    overhead: int = 0  # bytes of a file outside of its records


def bounds_of(size: int | str | None, records: int | None, overhead: int = 0) -> Bounds:
    """Return the bounds for the options of a user. If `records` is given, the default size does not apply."""
    if records is not None:
        records = _whole(records, "shard_records is a whole number, at least 1")
        size = None if isinstance(size, DefaultSize) else size
    return Bounds(None if size is None else parse_size(size), records, overhead)


class FillLevel:
    """The number and the total size of the records in the current file. Decides when the file is full."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.records: int = 0
        self.size: int = 0

    def fill(self, sizes: Sequence[int], begin: int = 0) -> int:
        """Add the next records, as many as fit into the current file, and return their number.

        If not all of them fit, the file is full: call `begin_next_file`.

        Args:
            sizes: The sizes of records.
            begin: The index in `sizes` of the first record that is not yet in a file.
        """
        count = len(sizes) - begin
        if self._bounds.records is not None:
            count = min(count, self._bounds.records - self.records)
        if self._bounds.size is None:
            self.size += sum(sizes[begin : begin + count])
        else:
            count = self._fill_bytes(sizes, begin, count, self._bounds.size - self._bounds.overhead)
        self.records += count
        return count

    def _fill_bytes(self, sizes: Sequence[int], begin: int, count: int, max_bytes: int) -> int:
        filled = self.size
        total = filled + sum(sizes[begin : begin + count])
        if total <= max_bytes:
            self.size = total
            return count
        for at in range(begin, begin + count):
            if filled + sizes[at] > max_bytes and (at > begin or self.records):
                self.size = filled
                return at - begin
            filled += sizes[at]
        self.size = filled
        return count

    def begin_next_file(self) -> None:
        """Count from 0 again, for an empty file."""
        self.records = self.size = 0
