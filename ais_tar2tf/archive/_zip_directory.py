"""The directory of a zip, for members whose local headers don't say how long they are.

It stands at the end of the shard: `DirectoryFinder` says which bytes it needs next, whoever reads gives them; it
does no I/O.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from ais_tar2tf.archive._zip_records import (
    CENTRAL,
    END64,
    END64_BYTES,
    END_BYTES,
    LOCATOR,
    LOCATOR_BYTES,
    End,
    Entry,
    find_end,
    parse_central,
    parse_end,
    parse_end64,
    parse_locator,
    record_bytes,
)
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import Limits

__all__ = ["Directory", "DirectoryFinder"]

_TAIL_BYTES = END_BYTES + 0xFFFF + LOCATOR_BYTES + END64_BYTES  # the longest comment, and the zip64 records before it


class Directory:
    """The entries of a directory in the order of their members, parsed when they are asked for."""

    def __init__(self, raw: bytes, end: End, shard: str, limits: Limits) -> None:
        self.begins_at: int = end.offset
        self._raw = raw
        self._shard = shard
        self._starts = array("q")
        places = array("q")
        at = 0
        while at < len(raw):
            length = self._record_bytes(at)
            self._starts.append(at)
            places.append(self._parse(at, length).offset)
            at += length
            if len(places) > limits.members:
                raise LimitExceeded(
                    f"there are over {limits.members:,} members, Limits.members", shard=shard, offset=end.offset + at
                )
        if len(places) != end.entries:
            raise self._error(f"the directory has {len(places):,} entries, its end says {end.entries:,}", at)
        self._order: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]] = np.argsort(
            np.frombuffer(places, np.int64) if places else np.empty(0, np.int64), kind="stable"
        )

    def entries(self, first: int) -> Iterator[Entry]:
        """Those whose local headers stand at `first` or behind it; none lies over another."""
        free = 0
        for number in self._order:
            at = self._starts[int(number)]
            entry = self._parse(at, self._record_bytes(at))
            if entry.offset < free:
                raise self._error(f"member {entry.name!r} lies over the one before it", at)
            free = entry.offset + entry.packed
            if free > self.begins_at:
                raise self._error(f"member {entry.name!r} lies over the directory", at)
            if entry.offset >= first:
                yield entry

    def _record_bytes(self, at: int) -> int:
        head = self._raw[at : at + 46]
        length = record_bytes(head, self._shard, self.begins_at + at)
        if head[:4] != CENTRAL or at + length > len(self._raw):
            raise self._error("the directory is cut, or damaged here", at)
        return length

    def _parse(self, at: int, length: int) -> Entry:
        return parse_central(self._raw[at : at + length], self._shard, self.begins_at + at)

    def _error(self, message: str, at: int) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self.begins_at + at)


class DirectoryFinder:
    """Asks for the ranges in which a directory stands: `needs`, then `give`, until `directory` is there."""

    def __init__(self, shard: str, limits: Limits, size: int) -> None:
        self.directory: Directory | None = None
        self.needs: tuple[int, int] | None = (max(0, size - _TAIL_BYTES), size)
        self._shard = shard
        self._limits = limits
        self._size = size
        self._end: End | None = None
        self._end_at = 0
        self._end64_needed = False

    def give(self, data: bytes) -> None:
        """The bytes of the range that was needed."""
        assert self.needs is not None
        start, stop = self.needs
        if len(data) != stop - start:
            raise TruncatedArchive(
                f"the zip ends at {start + len(data):,}, and had {self._size:,} bytes",
                shard=self._shard,
                offset=start,
            )
        if self._end is None:
            self._take_end(data, start)
        elif self._end64_needed:
            self._take_end64(data, start)
        else:
            self.needs = None
            self.directory = Directory(data, self._end, self._shard, self._limits)

    def _take_end(self, tail: bytes, start: int) -> None:
        at = find_end(tail)
        if at < 0:
            raise TruncatedArchive(
                "the zip ends without its directory, so members may be missing", shard=self._shard, offset=self._size
            )
        self._end, self._end_at = parse_end(tail[at:], self._shard, start + at), start + at
        locator = tail[max(0, at - LOCATOR_BYTES) : at]
        # Some write a zip64 end even where all numbers would fit: then nothing else ends where this record begins.
        if locator[:4] != LOCATOR or self._end.offset + self._end.size == self._end_at:
            self._ask_for_directory()
            return
        where = parse_locator(locator)
        if not 0 <= where <= self._end_at - LOCATOR_BYTES - END64_BYTES:
            raise self._error(f"the zip64 end is said to stand at {where:,}")
        self._end64_needed = True
        self.needs = (where, where + END64_BYTES)

    def _take_end64(self, data: bytes, start: int) -> None:
        if data[:4] != END64:
            raise self._error(f"the zip64 end is said to stand at {start:,}, and does not")
        self._end, self._end_at, self._end64_needed = parse_end64(data, self._shard, start), start, False
        self._ask_for_directory()

    def _ask_for_directory(self) -> None:
        end = self._end
        assert end is not None
        if end.size > self._limits.directory_bytes:
            raise LimitExceeded(
                f"the directory has {end.size:,} bytes, Limits.directory_bytes is {self._limits.directory_bytes:,}",
                shard=self._shard,
                offset=self._end_at,
            )
        if end.offset + end.size != self._end_at:
            raise self._error(
                f"the directory is said to end at {end.offset + end.size:,}: something stands before it"
            )
        self.needs = (end.offset, end.offset + end.size)
        if not end.size:
            self.give(b"")

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self._end_at)
