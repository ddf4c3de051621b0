"""Compares the directory of a zip with the zip's local headers. No I/O.

In a zip, a local header precedes each member. The directory comes after all members, and lists them again. The end of
the zip states where the directory is. Here, a record is an entry of the directory, or a part of the end.
"""

from __future__ import annotations

from ais_tar2tf.archive.bounds import check_member_count
from ais_tar2tf.archive.zip_records import (
    CENTRAL,
    END,
    END64,
    LOCATOR,
    DirectoryEnd,
    ZipEntry,
    parse_central,
    parse_end,
    parse_end64,
    parse_locator,
)
from ais_tar2tf.errors import ArchiveError, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["DirectoryCheck"]


class DirectoryCheck:
    """Checks that the directory of a zip describes the same members as the local headers did.

    Call `add_member()` for each member, then `add_record()` for each record of the directory and of the end of the
    zip. A fingerprint is a hash of what the local header and the directory must both state about a member. Only the
    sums of all fingerprints are compared. So no member is kept in memory, and the directory may have any order.
    """

    def __init__(self, shard: str, limits: Limits, start: int) -> None:
        self.begun: bool = False  # whether the directory has begun
        self.ended: bool = False  # whether the end has been read, and agrees with the members and the directory
        self.begins_at: int = 0  # offset of the directory
        # Members before this offset were read without the directory. Local headers do not show whether a member is a
        # link.
        self.links_known_from: int = 1 << 64
        self._shard = shard
        self._limits = limits
        self._start = start  # members before this offset were not read
        self._read = 0  # sum of the fingerprints of local headers
        self._listed = 0  # sum of the fingerprints of central entries
        self._entries = 0
        self._ends_at = 0  # offset of the directory's end
        self._end64: DirectoryEnd | None = None
        self._end64_at = 0  # offset of the zip64 end
        self._located_at: int | None = None  # offset of the zip64 end that the locator states

    def add_member(self, entry: ZipEntry) -> None:
        """Add a member that was read."""
        self._read += entry.fingerprint

    def add_record(self, raw: bytes, at: int) -> None:
        """Add the next record of the directory or of the end, which begins at offset `at`."""
        signature = raw[:4]
        if not self.begun:
            self.begun, self.begins_at, self._ends_at = True, at, at
        if signature == CENTRAL:
            self._add_entry(raw, at)
        elif signature == END64:
            self._end64, self._end64_at = parse_end64(raw, self._shard, at), at
        elif signature == LOCATOR:
            self._located_at = parse_locator(raw)
        elif signature == END:
            self._check_end(raw, at)
        else:
            raise AssertionError(signature)

    def _add_entry(self, raw: bytes, at: int) -> None:
        if self._end64 is not None:
            raise self._error("a member is listed after the end of the directory", at)
        entry = parse_central(raw, self._shard, at)
        self._entries += 1
        self._ends_at = at + len(raw)
        check_member_count(self._limits, self._entries, self._shard, at)
        if entry.offset < self._start:
            return
        self._listed += entry.fingerprint
        if entry.is_link and entry.offset < self.links_known_from:
            raise UnsupportedArchive(
                f"member {entry.name!r}, which was taken for a file, is a symbolic link, as only the directory says; "
                "write the archive again without links",
                shard=self._shard,
                offset=entry.offset,
            )

    def _check_end(self, raw: bytes, at: int) -> None:
        end = parse_end(raw, self._shard, at)
        if self._end64 is not None:
            if self._located_at != self._end64_at:
                raise self._error("the zip64 end is not at the offset that its locator states", at)
            end = self._end64
        stated = (end.entries, end.size, end.offset)
        found = (self._entries, self._ends_at - self.begins_at, self.begins_at)
        if stated != found:
            raise self._error(f"the directory is said to be (entries, bytes, offset) {stated}, and is {found}", at)
        if self._listed != self._read:
            raise self._error(
                "the directory does not list the members that were read: one was changed, left out, or written over",
                at,
            )
        self.ended = True

    def _error(self, message: str, at: int) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=at)
