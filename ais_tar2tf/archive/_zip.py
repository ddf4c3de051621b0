"""zip, read from blocks of bytes cut anywhere, from its first member to its end record; it does no I/O.

A local header that says how long its member is is believed, and the directory behind the last member must say the
same of every one. Where a header leaves that to what stands behind the member, the directory is asked for
(`missing`), and the same bytes go on by what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import cast

from isal import igzip_lib, isal_zlib

from ais_tar2tf.archive._content import Content
from ais_tar2tf.archive._frames import RATIO_SLACK, Frame
from ais_tar2tf.archive._members import Bytes, Members, Wanted
from ais_tar2tf.archive._zip_check import DirectoryCheck
from ais_tar2tf.archive._zip_directory import Directory
from ais_tar2tf.archive._zip_records import (
    LOCAL,
    LONGEST_FIXED,
    MOST_BEHIND,
    STORED,
    Entry,
    parse_local,
    record_bytes,
)
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import KIB, MIB, Limits

__all__ = ["ZipReader"]

_HANDED_OUT = 1 * MIB  # bytes of members collected before they are
_PIECE = 256 * KIB  # of deflated bytes at once
_OUT_BYTES = 1 * MIB  # of what they become
_DAMAGED = cast("type[Exception]", igzip_lib.IsalError)  # isal's stub takes the class for an instance


class _OverRatio(Exception):
    """More has come out of a member than what came in allows."""


class _Body:
    """The bytes of one member, as they come; a ValueError says what is wrong with them."""

    def __init__(self, entry: Entry, *, keep: bool) -> None:
        self.entry = entry
        self.left = entry.packed
        self._keep = keep
        self._content = Content(entry.size)
        self._crc = 0
        self._frame: Frame | None = None
        if keep and entry.method != STORED:
            self._frame = cast("Frame", igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE))

    @property
    def size(self) -> int:
        """Bytes that it has become so far."""
        return self._content.size

    def take(self, view: memoryview, most: int) -> None:
        """The next bytes of it, which may become `most` bytes."""
        self.left -= len(view)
        if not self._keep:
            return
        if self._frame is None:
            self._add(view)
            return
        for at in range(0, len(view), _PIECE):
            most -= self._inflate(self._frame, view[at : at + _PIECE], most)

    def finish(self) -> bytes:
        if not self._keep:
            return b""
        if self._frame is not None and not self._frame.eof:
            raise ValueError("it ends early")
        if self.size != self.entry.size:
            raise ValueError(f"it has {self.size:,} bytes, and should have {self.entry.size:,}")
        if self._crc != self.entry.crc:
            raise ValueError("its checksum is wrong")
        return self._content.whole()

    def _inflate(self, frame: Frame, piece: Bytes, most: int) -> int:
        before = self.size
        while not frame.eof:
            try:
                self._add(frame.decompress(piece, min(_OUT_BYTES, self.entry.size - self.size + 1)))
            except _DAMAGED as error:
                raise ValueError(str(error)) from error
            if self.size > self.entry.size:
                raise ValueError("it becomes longer than the archive says")
            if self.size - before > most:
                raise _OverRatio
            if frame.needs_input:
                return self.size - before
            piece = b""
        if frame.unused_data or (before == self.size and piece):
            raise ValueError("there is more behind its end")
        return self.size - before

    def _add(self, data: Bytes) -> None:
        self._content.add(data)
        self._crc = isal_zlib.crc32(data, self._crc)


class ZipReader:
    """Members of one zip. `start` is the offset of a local header, when the bytes do not begin with the first."""

    def __init__(self, shard: str, limits: Limits, *, start: int = 0, wanted: Wanted | None = None) -> None:
        self.ignored: int = 0
        self.missing: bool = False  # the directory: nothing goes on before `resume` has it
        self._shard = shard
        self._limits = limits
        self._wanted = wanted
        self._at = start  # offset of the next byte
        self._record = b""  # as much of a record as has come
        self._held = b""  # bytes that wait for the directory
        self._behind = 0  # bytes that stand behind the member
        self._body: _Body | None = None
        self._packed = self._unpacked = 0  # bytes of deflated members
        self._directory: Directory | None = None  # when it was asked for
        self._to_come: Iterator[Entry] = iter(())  # what it lists from here on
        self._next: Entry | None = None
        self._last: Entry | None = None
        self._check = DirectoryCheck(shard, limits, start)
        self._names, self._offsets = list[str](), list[int]()
        self._bodies, self._waiting = list[bytes](), 0

    @property
    def end(self) -> int:
        return self._check.begins_at

    @property
    def ended(self) -> bool:
        """Whether the directory has begun, behind which no member may stand."""
        return self._check.begun

    def feed(self, block: Bytes) -> Iterator[Members]:
        view = memoryview(block)
        position = 0
        while position < len(view) and not self.missing:
            try:
                position += self._step(view[position:])
            except ArchiveError:
                if self._names:  # they came before what is wrong
                    yield self._hand_out()
                raise
            if self._waiting >= _HANDED_OUT or (self._names and self._is_large(self._body)):
                yield self._hand_out()
        self._held = bytes(view[position:])
        if self._names:
            yield self._hand_out()

    def resume(self, directory: Directory) -> Iterator[Members]:
        """Go on by what the directory says, from the header that did not say it."""
        raw, held = self._record, self._held
        self.missing, self._record, self._held = False, b"", b""
        self._at -= len(raw)
        self._directory = directory
        self._to_come = directory.entries(self._at)
        self._check.links_known_from = self._at
        if self._to_next():
            raise self._unlisted()
        yield from self.feed(raw + held)

    def finish(self) -> None:
        if self._check.ended:
            return
        if self._body is not None:
            where = f"within member {self._body.entry.name!r}"
        else:
            where = "within its directory" if self._check.begun else "before its directory"
        raise TruncatedArchive(
            f"the zip ends {where}, so members may be missing", shard=self._shard, offset=self._at + len(self._held)
        )

    def _step(self, view: memoryview) -> int:
        """One step further: the number of bytes taken."""
        if self._check.ended:
            raise self._error("there is something behind the end of the zip")
        if self._behind:
            taken = min(self._behind - len(self._record), len(view))
            self._record += view[:taken]
            self._check_behind()
        elif self._body is not None:
            taken = min(self._body.left, len(view))
            self._take(self._body, view[:taken])
        else:
            taken = self._collect(view)
        self._at += taken
        if self._body is not None and not self._body.left:
            self._finish_body(self._body)
        return taken

    def _collect(self, view: memoryview) -> int:
        """Gather one record of the zip; the number of bytes that went into it."""
        begin = self._at - len(self._record)
        if not self._record and len(view) >= LONGEST_FIXED:
            need = record_bytes(bytes(view[:LONGEST_FIXED]), self._shard, begin)
            if need <= len(view) and need <= self._limits.header_bytes:
                self._read(bytes(view[:need]), begin)
                return need
        need = record_bytes(self._record, self._shard, begin)
        self._check_limit("header_bytes", need, "a header")
        piece = bytes(view[: need - len(self._record)])
        self._record += piece
        if len(self._record) == record_bytes(self._record, self._shard, begin):
            raw, self._record = self._record, b""
            self._read(raw, begin)
        return len(piece)

    def _read(self, raw: bytes, begin: int) -> None:
        if raw[:4] != LOCAL:
            self._check.take(raw, begin)
            return
        if self._check.begun:
            raise self._error("a member stands behind the directory")
        entry = parse_local(raw, self._shard, begin)
        if self._directory is not None:
            entry = self._as_listed(entry)
        elif entry.sizes_behind:
            self._record, self.missing = raw, True
            return
        self._check.met(entry)
        self._check_limit("name_bytes", len(entry.raw_name), "a name")
        keep = entry.is_file and (self._wanted is None or self._wanted(entry.name))
        if keep:
            self._check_sizes(entry)
        self._body = _Body(entry, keep=keep)

    def _check_sizes(self, entry: Entry) -> None:
        """Bound a member by what its header states, before the first of its bytes is kept or inflated."""
        self._check_limit("member_bytes", entry.size, f"member {entry.name!r}")
        if entry.method == STORED and entry.packed != entry.size:
            raise self._damaged(
                entry, ValueError(f"it is stored in {entry.packed:,} bytes, and should have {entry.size:,}")
            )
        most = self._limits.member_bytes + RATIO_SLACK  # deflated bytes may be a little more than the bytes they hold
        if entry.packed > most:
            raise LimitExceeded(
                f"member {entry.name!r} has {entry.packed:,} deflated bytes for {entry.size:,}; "
                f"Limits.member_bytes is {self._limits.member_bytes:,}",
                shard=self._shard,
                offset=entry.offset,
            )

    def _as_listed(self, entry: Entry) -> Entry:
        """What the directory says of a member, whose own header must not say anything else."""
        listed = self._next
        if listed is None or (listed.offset, listed.raw_name, listed.method) != (
            entry.offset,
            entry.raw_name,
            entry.method,
        ):
            raise self._error(f"member {entry.name!r} is not what the directory says of it")
        return listed

    def _take(self, body: _Body, view: memoryview) -> None:
        before = body.size
        self._packed += len(view)
        try:
            body.take(view, RATIO_SLACK + self._limits.ratio * self._packed - self._unpacked)
        except ValueError as error:
            raise self._damaged(body.entry, error) from error
        except _OverRatio as error:
            raise LimitExceeded(
                f"{self._packed:,} compressed bytes have become over {self._unpacked + body.size - before:,}; "
                f"Limits.ratio is {self._limits.ratio:,}",
                shard=self._shard,
                offset=body.entry.offset,
            ) from error
        self._unpacked += body.size - before

    def _finish_body(self, body: _Body) -> None:
        try:
            content = body.finish()
        except ValueError as error:
            raise self._damaged(body.entry, error) from error
        self._body = None
        if body.entry.is_file:
            self._names.append(body.entry.name)
            self._offsets.append(body.entry.offset)
            self._bodies.append(content)
            self._waiting += len(content)
        else:
            self.ignored += 1
        if self._directory is not None:
            self._behind = self._to_next()
            if self._behind > MOST_BEHIND or (self._behind and not body.entry.sizes_behind):
                raise self._unlisted()
            self._last = body.entry

    def _to_next(self) -> int:
        """Bytes before what the directory lists next."""
        assert self._directory is not None
        self._next = next(self._to_come, None)
        following = self._directory.begins_at if self._next is None else self._next.offset
        if following < self._at:
            raise self._error("a member is longer than its place in the directory")
        return following - self._at

    def _check_behind(self) -> None:
        if len(self._record) < self._behind:
            return
        assert self._last is not None
        if self._record not in self._last.descriptors:
            raise self._unlisted()
        self._record, self._behind = b"", 0

    def _unlisted(self) -> ArchiveError:
        return self._error("there is something between the members that the directory does not list")

    def _is_large(self, body: _Body | None) -> bool:
        """Whether it is handed out by itself: then nobody copies it."""
        return body is not None and body.entry.size >= _HANDED_OUT

    def _hand_out(self) -> Members:
        sizes = list(map(len, self._bodies))
        starts = [0, *accumulate(sizes)][:-1]
        data = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        members = Members(self._names, self._offsets, starts, sizes, data)
        self._names, self._offsets, self._bodies, self._waiting = [], [], [], 0
        return members

    def _check_limit(self, name: str, value: int, what: str) -> None:
        limit: int = getattr(self._limits, name)
        if value > limit:
            raise LimitExceeded(
                f"{what} has {value:,} bytes, Limits.{name} is {limit:,}", shard=self._shard, offset=self._at
            )

    def _damaged(self, entry: Entry, error: ValueError) -> ArchiveError:
        return ArchiveError(f"member {entry.name!r} is damaged: {error}", shard=self._shard, offset=entry.offset)

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self._at)
