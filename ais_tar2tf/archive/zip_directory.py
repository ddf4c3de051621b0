"""The directory of a zip, for members whose local headers don't state their sizes. No I/O.

The directory is at the end of the shard. `find_directory` reads it through a function that the caller passes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

import numpy as np

from ais_tar2tf.archive.bounds import check_limit, check_member_count
from ais_tar2tf.archive.zip_records import (
    CENTRAL,
    END64,
    END64_BYTES,
    END_BYTES,
    LOCATOR,
    LOCATOR_BYTES,
    DirectoryEnd,
    ZipEntry,
    find_end,
    parse_central,
    parse_end,
    parse_end64,
    parse_locator,
    record_bytes,
)
from ais_tar2tf.errors import ArchiveError, TruncatedArchive
from ais_tar2tf.options import Limits

__all__ = ["Directory", "find_directory"]

_TAIL_BYTES = END_BYTES + 0xFFFF + LOCATOR_BYTES + END64_BYTES  # with the longest comment, and with zip64 records


class Directory:
    """The central entries of a zip, in the order of their members. Parsed entries are not kept."""

    def __init__(self, raw: bytes, end: DirectoryEnd, shard: str, limits: Limits) -> None:
        self.begins_at: int = end.offset
        self._raw = raw
        self._shard = shard
        self._starts = array("q")  # of the entries, in `raw`
        offsets = array("q")  # of their local headers, in the zip
        at = 0
        while at < len(raw):
            length = self._record_bytes(at)
            self._starts.append(at)
            offsets.append(self._parse(at, length).offset)
            at += length
            check_member_count(limits, len(offsets), shard, end.offset + at)
        if len(offsets) != end.entries:
            raise self._error(f"the directory has {len(offsets):,} entries, its end says {end.entries:,}", at)
        self._order: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]] = np.argsort(
            np.frombuffer(offsets, np.int64) if offsets else np.empty(0, np.int64), kind="stable"
        )

    def entries(self, first: int) -> Iterator[ZipEntry]:
        """Yield the entries of members at offset `first` or later, and check that no member overlaps another."""
        end = 0  # of the member before
        for number in self._order:
            at = self._starts[int(number)]
            entry = self._parse(at, self._record_bytes(at))
            if entry.offset < end:
                raise self._error(f"member {entry.name!r} lies over the one before it", at)
            end = entry.offset + entry.packed
            if end > self.begins_at:
                raise self._error(f"member {entry.name!r} lies over the directory", at)
            if entry.offset >= first:
                yield entry

    def _record_bytes(self, at: int) -> int:
        head = self._raw[at : at + 46]
        length = record_bytes(head, self._shard, self.begins_at + at)
        if head[:4] != CENTRAL or at + length > len(self._raw):
            raise self._error("the directory is cut, or damaged here", at)
        return length

    def _parse(self, at: int, length: int) -> ZipEntry:
        return parse_central(self._raw[at : at + length], self._shard, self.begins_at + at)

    def _error(self, message: str, at: int) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self.begins_at + at)


def find_directory(shard: str, limits: Limits, size: int, read_range: Callable[[int, int], bytes]) -> Directory:
    """Find the directory of a zip, whose position the end of the zip states.

    Args:
        shard: The shard, for errors.
        limits: Bound the size of the directory and the number of its entries.
        size: The size of the zip in bytes.
        read_range: Returns the bytes of the zip from one offset to another.

    Raises:
        ArchiveError: The zip has no directory, or the directory is damaged.
    """

    def read(start: int, stop: int) -> bytes:
        data = read_range(start, stop)
        if len(data) != stop - start:
            raise TruncatedArchive(
                f"the zip ends at {start + len(data):,}, and had {size:,} bytes", shard=shard, offset=start
            )
        return data

    start = max(0, size - _TAIL_BYTES)
    tail = read(start, size)
    at = find_end(tail)
    if at < 0:
        raise TruncatedArchive(
            "the zip ends without its directory, so members may be missing", shard=shard, offset=size
        )
    end, end_at = parse_end(tail[at:], shard, start + at), start + at
    locator = tail[max(0, at - LOCATOR_BYTES) : at]
    # If the directory ends where the end record begins, there is no zip64 end between the directory and the end
    # record, and bytes that look like a locator are ignored. Some programs write a zip64 end even if all numbers fit
    # into the end record. The locator is used in this case, too.
    if locator[:4] == LOCATOR and end.offset + end.size != end_at:
        end64_at = parse_locator(locator)
        if not 0 <= end64_at <= end_at - LOCATOR_BYTES - END64_BYTES:
            raise ArchiveError(
                f"the zip64 end cannot be at {end64_at:,}, the offset that its locator states",
                shard=shard,
                offset=end_at,
            )
        record = read(end64_at, end64_at + END64_BYTES)
        if record[:4] != END64:
            message = f"the zip64 end is said to stand at {end64_at:,}, and does not"
            raise ArchiveError(message, shard=shard, offset=end_at)
        end, end_at = parse_end64(record, shard, end64_at), end64_at
    check_limit(limits, "directory_bytes", end.size, "the directory", shard, end_at)
    if end.offset + end.size != end_at:
        message = f"the directory ends at {end_at:,}, and is said to end at {end.offset + end.size:,}"
        raise ArchiveError(message, shard=shard, offset=end_at)
    return Directory(read(end.offset, end_at) if end.size else b"", end, shard, limits)
