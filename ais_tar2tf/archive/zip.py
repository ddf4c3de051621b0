"""A reader of zips. Its input is blocks of bytes, and a block may end anywhere. No I/O.

In a zip, a local header stands before each member. The directory at the end has a central entry for each member. In
this module, a record is a header, an entry or another structure of the zip format (see `zip_records.py`).

The reader yields members in the order in which they stand in the zip, before the directory arrives. If a local header
states the sizes of its member, the reader uses these sizes. When the directory arrives, `zip_check.py` compares the
directory with all local headers.

A local header may instead leave the sizes to a data descriptor after the member. Then the reader cannot know where
the member ends. The reader sets `needs_directory`, and continues when the caller passes the directory to `resume()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import cast

from isal import igzip_lib, isal_zlib

from ais_tar2tf.archive.bounds import check_limit
from ais_tar2tf.archive.compressions import Frame
from ais_tar2tf.archive.content import MemberContent
from ais_tar2tf.archive.decompression import RATIO_SLACK
from ais_tar2tf.archive.members import Bytes, ListedMembers, Members, Wanted
from ais_tar2tf.archive.zip_check import DirectoryCheck
from ais_tar2tf.archive.zip_directory import Directory
from ais_tar2tf.archive.zip_records import (
    LOCAL,
    LONGEST_DESCRIPTOR,
    LONGEST_FIXED,
    STORED,
    ZipEntry,
    parse_local,
    record_bytes,
)
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import KIB, MIB, Limits

__all__ = ["ZipReader"]

_GROUP_BYTES = 1 * MIB  # small members are handed out together, in groups of about this size
_INPUT_BYTES = 256 * KIB  # the most deflated bytes that are passed to one call of `decompress`
_OUTPUT_BYTES = 1 * MIB  # the most inflated bytes that one call of `decompress` returns
_INFLATE_ERROR = cast("type[Exception]", igzip_lib.IsalError)  # isal's type stub declares an instance


class _RatioExceeded(Exception):
    """A member inflates to more bytes than `Limits.ratio` allows."""


class _ZipBody:
    """The body of one member. With `keep`, its bytes are inflated, checked and collected. Otherwise they are counted.

    `add` and `finish` raise ValueError if the bytes are damaged.
    """

    def __init__(self, entry: ZipEntry, *, keep: bool) -> None:
        self.entry = entry
        self.left = entry.packed  # packed bytes that have not arrived
        self._keep = keep
        self._content = MemberContent(entry.size)
        self._crc = 0
        self._frame: Frame | None = None
        if keep and entry.method != STORED:
            self._frame = cast("Frame", igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE))

    @property
    def size(self) -> int:
        """The number of unpacked bytes so far."""
        return self._content.size

    def add(self, view: memoryview, most: int) -> None:
        """Add the next bytes of the member. Raise `_RatioExceeded` if they inflate to more than `most` bytes."""
        self.left -= len(view)
        if not self._keep:
            return
        if self._frame is None:
            self._add_unpacked(view)
            return
        for at in range(0, len(view), _INPUT_BYTES):
            most -= self._inflate(self._frame, view[at : at + _INPUT_BYTES], most)

    def finish(self) -> bytes:
        """Check the size and the checksum; return the content, or b"" if the member is not kept."""
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
        """Inflate `piece`, and return the number of inflated bytes.

        The loop is needed because one call of `decompress` may leave input or output for further calls.
        """
        before = self.size
        while not frame.eof:
            try:
                self._add_unpacked(frame.decompress(piece, min(_OUTPUT_BYTES, self.entry.size - self.size + 1)))
            except _INFLATE_ERROR as error:
                raise ValueError(str(error)) from error
            if self.size > self.entry.size:
                raise ValueError("it becomes longer than the archive says")
            if self.size - before > most:
                raise _RatioExceeded
            if frame.needs_input:
                return self.size - before
            piece = b""
        if frame.unused_data or (before == self.size and piece):
            raise ValueError("more bytes follow its end")
        return self.size - before

    def _add_unpacked(self, data: Bytes) -> None:
        self._content.add(data)
        self._crc = isal_zlib.crc32(data, self._crc)


class ZipReader:
    """Reads the members of one zip.

    Args:
        shard: The shard, for errors.
        limits: Bound the sizes of members, names and headers.
        start: The offset at which the first block begins in the zip. A local header must begin at this offset.
        wanted: Tells by a member's name whether the member is wanted. The bytes of other members are not collected.
            None: all members are wanted.
    """

    def __init__(self, shard: str, limits: Limits, *, start: int = 0, wanted: Wanted | None = None) -> None:
        self.ignored: int = 0  # members so far that are directories or symbolic links
        self.needs_directory: bool = False  # while true, `resume()` must be called next
        self._shard = shard
        self._limits = limits
        self._wanted = wanted
        self._at = start  # offset of the next byte
        # The beginning of a record or data descriptor that continues in the next block. While `needs_directory` is
        # true: the local header of the member that needs the directory.
        self._record = b""
        self._held = b""  # the rest of the last block, which `resume()` reads
        self._descriptor_bytes = 0  # size of the data descriptor that comes next; 0 if no descriptor comes next
        self._body: _ZipBody | None = None
        self._packed = self._unpacked = 0  # bytes of the members so far: as stored in the zip, and unpacked
        self._directory: Directory | None = None  # None until `resume()` gets the directory
        self._entries: Iterator[ZipEntry] = iter(())  # central entries of the members to come
        self._next: ZipEntry | None = None  # the central entry of the next member
        self._last: ZipEntry | None = None  # the member that was read last
        self._check = DirectoryCheck(shard, limits, start)
        # Names, offsets and contents of the members that are handed out next.
        self._names, self._offsets, self._bodies = list[str](), list[int](), list[bytes]()
        self._group_bytes = 0

    @property
    def end(self) -> int:
        """The offset of the directory; valid after `finish()`."""
        return self._check.begins_at

    @property
    def ended(self) -> bool:
        """Whether the directory has begun. No member may follow it."""
        return self._check.begun

    def feed(self, block: Bytes) -> Iterator[Members]:
        """Yield the members that end in this block. Stop before a member that needs the directory."""
        view = memoryview(block)
        position = 0
        while position < len(view) and not self.needs_directory:
            try:
                position += self._step(view[position:])
            except ArchiveError:
                if self._names:  # first hand out the members that end before the error
                    yield self._hand_out()
                raise
            next_is_large = self._body is not None and self._body.entry.size >= _GROUP_BYTES
            # A large member is handed out alone, so that its bytes are not copied.
            if self._group_bytes >= _GROUP_BYTES or (self._names and next_is_large):
                yield self._hand_out()
        self._held = bytes(view[position:])
        if self._names:
            yield self._hand_out()

    def resume(self, directory: Directory) -> Iterator[Members]:
        """Continue with the member that needed the directory. Yield the members that end in the block last fed."""
        raw, held = self._record, self._held
        self.needs_directory, self._record, self._held = False, b"", b""
        self._at -= len(raw)
        self._directory = directory
        self._entries = directory.entries(self._at)
        self._check.links_known_from = self._at
        if self._bytes_to_next(directory):
            raise self._unlisted()
        yield from self.feed(raw + held)

    def finish(self) -> None:
        """Check that the zip is complete.

        Raises:
            TruncatedArchive: The bytes end before the last record of the zip, which states where the directory is.
        """
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
        """Read the next part of a data descriptor, a body or a record; return the number of bytes consumed."""
        if self._check.ended:
            raise self._error("other bytes follow the end of the zip")
        if self._descriptor_bytes:
            count = self._read_descriptor(view)
        elif self._body is not None:
            count = min(self._body.left, len(view))
            self._add_to(self._body, view[:count])
        else:
            count = self._read_record(view)
        self._at += count
        if self._body is not None and not self._body.left:
            self._finish_body(self._body)
        return count

    def _read_descriptor(self, view: memoryview) -> int:
        """Read the next part of a data descriptor; return the number of bytes consumed.

        Once all its bytes have arrived, the descriptor must agree with the central entry of the member before it.
        """
        piece = view[: self._descriptor_bytes - len(self._record)]
        self._record += piece
        if len(self._record) == self._descriptor_bytes:
            assert self._last is not None
            if self._record not in self._last.descriptors:
                raise self._unlisted()
            self._record, self._descriptor_bytes = b"", 0
        return len(piece)

    def _read_record(self, view: memoryview) -> int:
        """Read one record, or the part of it that has arrived; return the number of bytes consumed."""
        begin = self._at - len(self._record)
        if not self._record and len(view) >= LONGEST_FIXED:
            need = record_bytes(bytes(view[:LONGEST_FIXED]), self._shard, begin)
            if need <= len(view) and need <= self._limits.header_bytes:
                self._use_record(bytes(view[:need]), begin)
                return need
        need = record_bytes(self._record, self._shard, begin)
        self._check_limit("header_bytes", need, "a header")
        piece = bytes(view[: need - len(self._record)])
        self._record += piece
        if len(self._record) == record_bytes(self._record, self._shard, begin):
            raw, self._record = self._record, b""
            self._use_record(raw, begin)
        return len(piece)

    def _use_record(self, raw: bytes, begin: int) -> None:
        """Begin a member if the record is a local header. Pass any other record to `DirectoryCheck`.

        If the local header leaves the sizes to a data descriptor, and there is no directory, set `needs_directory`.
        """
        if raw[:4] != LOCAL:
            self._check.add_record(raw, begin)
            return
        if self._check.begun:
            raise self._error("a member follows the directory")
        entry = parse_local(raw, self._shard, begin)
        if self._directory is not None:
            entry = self._listed(entry)
        elif entry.has_descriptor:
            self._record, self.needs_directory = raw, True
            return
        self._check.add_member(entry)
        self._check_limit("name_bytes", len(entry.raw_name), "a name")
        keep = entry.is_file and (self._wanted is None or self._wanted(entry.name))
        if keep:
            self._check_sizes(entry)
        self._body = _ZipBody(entry, keep=keep)

    def _check_sizes(self, entry: ZipEntry) -> None:
        """Check the stated sizes of a member, before any of its bytes are kept or inflated."""
        self._check_limit("member_bytes", entry.size, f"member {entry.name!r}")
        if entry.method == STORED and entry.packed != entry.size:
            raise self._damaged(
                entry, ValueError(f"it is stored in {entry.packed:,} bytes, and should have {entry.size:,}")
            )
        most = self._limits.member_bytes + RATIO_SLACK  # deflating random bytes makes them a little longer
        if entry.packed > most:
            raise LimitExceeded(
                f"member {entry.name!r} has {entry.packed:,} deflated bytes for {entry.size:,}; "
                f"Limits.member_bytes is {self._limits.member_bytes:,}",
                shard=self._shard,
                offset=entry.offset,
            )

    def _listed(self, entry: ZipEntry) -> ZipEntry:
        """Return the central entry of the member with the local header `entry`. Check that the two agree."""
        listed = self._next
        if listed is None or (listed.offset, listed.raw_name, listed.method) != (
            entry.offset,
            entry.raw_name,
            entry.method,
        ):
            raise self._error(f"member {entry.name!r} is not as the directory describes it")
        return listed

    def _add_to(self, body: _ZipBody, view: memoryview) -> None:
        before = body.size
        self._packed += len(view)
        try:
            body.add(view, RATIO_SLACK + self._limits.ratio * self._packed - self._unpacked)
        except ValueError as error:
            raise self._damaged(body.entry, error) from error
        except _RatioExceeded as error:
            raise LimitExceeded(
                f"{self._packed:,} compressed bytes have become over {self._unpacked + body.size - before:,}; "
                f"Limits.ratio is {self._limits.ratio:,}",
                shard=self._shard,
                offset=body.entry.offset,
            ) from error
        self._unpacked += body.size - before

    def _finish_body(self, body: _ZipBody) -> None:
        entry = body.entry
        try:
            content = body.finish()
        except ValueError as error:
            raise self._damaged(entry, error) from error
        self._body = None
        if entry.is_file:
            self._names.append(entry.name)
            self._offsets.append(entry.offset)
            self._bodies.append(content)
            self._group_bytes += len(content)
        else:
            self.ignored += 1
        if self._directory is not None:
            self._descriptor_bytes = self._bytes_to_next(self._directory)
            if self._descriptor_bytes > (LONGEST_DESCRIPTOR if entry.has_descriptor else 0):
                raise self._unlisted()
            self._last = entry

    def _bytes_to_next(self, directory: Directory) -> int:
        """Advance to the next central entry; return the number of bytes from `_at` to the entry's member.

        After the last entry, return the number of bytes from `_at` to the directory.
        """
        self._next = next(self._entries, None)
        following = directory.begins_at if self._next is None else self._next.offset
        if following < self._at:
            raise self._error("a member is longer than its place in the directory")
        return following - self._at

    def _hand_out(self) -> Members:
        sizes = list(map(len, self._bodies))
        starts = [0, *accumulate(sizes)][:-1]
        data = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        members = ListedMembers(self._names, self._offsets, starts, sizes, data)
        self._names, self._offsets, self._bodies, self._group_bytes = [], [], [], 0
        return members

    def _check_limit(self, name: str, value: int, subject: str) -> None:
        check_limit(self._limits, name, value, subject, self._shard, self._at)

    def _unlisted(self) -> ArchiveError:
        return self._error("between members there are bytes that the directory does not list")

    def _damaged(self, entry: ZipEntry, error: ValueError) -> ArchiveError:
        return ArchiveError(f"member {entry.name!r} is damaged: {error}", shard=self._shard, offset=entry.offset)

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self._at)
