"""The directory behind a zip's members, as it comes: it must say of every member what its own header said."""

from __future__ import annotations

from ais_tar2tf.archive._zip_records import (
    CENTRAL,
    END,
    END64,
    LOCATOR,
    End,
    Entry,
    parse_central,
    parse_end,
    parse_end64,
    parse_locator,
)
from ais_tar2tf.errors import ArchiveError, LimitExceeded, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["DirectoryCheck"]


class DirectoryCheck:
    """Compares sums of fingerprints, so that nothing is kept of a member, and the order plays no part."""

    def __init__(self, shard: str, limits: Limits, start: int) -> None:
        self.begun: bool = False
        self.ended: bool = False
        self._shard = shard
        self._limits = limits
        self._start = start  # members before it were not met
        self._met = 0  # sum of fingerprints
        self._listed = 0
        self._entries = 0
        self.begins_at: int = 0
        self._ends_at = 0
        self._end64: End | None = None
        self._end64_at = 0
        self._located_at: int | None = None
        self.links_known_from: int = 1 << 64  # before it, a symbolic link could not be told from a file

    def met(self, entry: Entry) -> None:
        """A member has come."""
        self._met += entry.fingerprint

    def take(self, raw: bytes, at: int) -> None:
        """The next record of the directory, or of its end."""
        sign = raw[:4]
        if not self.begun:
            self.begun, self.begins_at, self._ends_at = True, at, at
        if sign == CENTRAL:
            self._take_entry(raw, at)
        elif sign == END64:
            self._end64, self._end64_at = parse_end64(raw, self._shard, at), at
        elif sign == LOCATOR:
            self._located_at = parse_locator(raw)
        elif sign == END:
            self._take_end(raw, at)
        else:
            raise AssertionError(sign)

    def _take_entry(self, raw: bytes, at: int) -> None:
        if self._end64 is not None:
            raise self._error("a member is listed behind the end of the directory", at)
        entry = parse_central(raw, self._shard, at)
        self._entries += 1
        self._ends_at = at + len(raw)
        if self._entries > self._limits.members:
            raise LimitExceeded(
                f"there are over {self._limits.members:,} members, Limits.members", shard=self._shard, offset=at
            )
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

    def _take_end(self, raw: bytes, at: int) -> None:
        end = parse_end(raw, self._shard, at)
        if self._end64 is not None:
            if self._located_at != self._end64_at:
                raise self._error("the zip64 end does not stand where it is said to", at)
            end = self._end64
        said = (end.entries, end.size, end.offset)
        found = (self._entries, self._ends_at - self.begins_at, self.begins_at)
        if said != found:
            raise self._error(f"the directory is said to be (entries, bytes, offset) {said}, and is {found}", at)
        if self._listed != self._met:
            raise self._error(
                "the directory does not list the members that came: one was changed, left out, or written over", at
            )
        self.ended = True

    def _error(self, message: str, at: int) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=at)
