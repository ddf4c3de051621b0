"""A reader of tars: ustar, GNU, PAX, star and v7. Its input is blocks, and a block may end anywhere.

Members are found in two ways, with the same result. Many plain headers whose bodies end in the block are read at once
(`tar_native.py`, or `tar_runs.py` in pure Python). Everything else is read in this module, one header at a time: PAX
headers that change a size, long names, base-256 numbers, v7, odd headers, and bodies that continue in the next block.

`walk` also finds members in an open file that it is given. This module must not open files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ais_tar2tf.archive.bounds import check_limit
from ais_tar2tf.archive.content import MemberContent
from ais_tar2tf.archive.members import Bytes, ListedMembers, Members, MemberTable, Wanted
from ais_tar2tf.archive.tar_header import BLOCK, ZERO_BLOCK, Header, Kind, decode_name, parse_header, parse_pax
from ais_tar2tf.archive.tar_native import NativeRuns
from ais_tar2tf.archive.tar_runs import PlainMembers, PlainRun
from ais_tar2tf.archive.tar_sparse import SparseMember, gnu_parts, gnu_real_size, is_sparse, pax_sparse
from ais_tar2tf.archive.tar_table import LONGEST_NAME
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.native import tar_library
from ais_tar2tf.options import KIB, Limits

__all__ = ["TarReader"]

Headers = Literal["auto", "native", "python", "table", "walk", "careful"]
"""How headers are found: by `tar_native.py`, by `tar_table.py`, by `tar_walk.py`, or one by one (`careful`).

`auto` is `native` where the native step can be used, and otherwise `python`, which selects the faster of table and
walk for each block. All ways have the same result.
"""

_LARGE_BODY = 32 * KIB  # from this size on, members are found in a file without reading their bodies
_EXTENSIONS = frozenset({Kind.PAX, Kind.GLOBAL_PAX, Kind.LONG_NAME, Kind.LONG_LINK})


class _TarBody:
    """The body of one member, or of one extension header, while its blocks arrive."""

    __slots__ = ("content", "have", "header", "keep", "offset", "sparse")

    def __init__(self, header: Header, offset: int, keep: bool, sparse: SparseMember | None = None) -> None:
        self.header = header
        self.offset = offset  # of the first header that describes the member
        self.keep = keep
        self.sparse = sparse
        self.content = MemberContent(header.size)
        self.have = 0

    def add(self, block: memoryview, position: int) -> int:
        """Add the bytes of the body that `block` has from `position` on; return the position after them."""
        end = min(len(block), position + self.header.size - self.have)
        if self.keep:
            self.content.add(block[position:end])
        self.have += end - position
        return end


@dataclass(slots=True)
class _Extensions:
    """What the extension headers read so far state about the next member."""

    offset: int | None = None  # of the first header that describes the member; None before any
    size: int = 0  # bytes of the extension headers' bodies
    long_name: bytes | None = None
    pax: dict[bytes, bytes] = field(default_factory=dict)
    sparse: SparseMember | None = None
    sparse_header: Header | None = None  # the member's own header, while blocks of its old GNU map follow


class TarReader:
    """Reads the members of one tar. The first block begins with a header, at the offset `start` of the tar."""

    def __init__(
        self,
        shard: str,
        limits: Limits,
        *,
        start: int = 0,
        wanted: Wanted | None = None,
        allow_missing_end: bool = False,
        allow_concatenated: bool = False,
        headers: Headers = "auto",
    ) -> None:
        self.ignored: int = 0
        self.again: int = 0  # bytes at the end of the last block, with which the next block has to begin
        self._shard = shard
        self._limits = limits
        self._wanted = wanted
        self._allow_missing_end = allow_missing_end
        self._allow_concatenated = allow_concatenated
        # A plain header can exceed these limits only where they are tiny; then every header is checked by itself.
        tight = limits.name_bytes < LONGEST_NAME or limits.header_bytes < 2 * BLOCK
        library = tar_library() if headers in ("auto", "native") and not tight else None
        self._native = None if library is None else NativeRuns(library, limits)
        if headers in ("auto", "native"):
            headers = "python"
        self._headers = "careful" if tight else headers
        self._dense = headers != "walk"  # whether the last block had many headers
        self._plain: PlainMembers | None = None  # of the current block
        self._in_file = False  # whether the last members were large, and found by `walk`
        self._base = start  # offset of the block in the archive
        self._skip = 0  # bytes before the next header: padding
        self._partial = b""  # the beginning of a header, whose rest is in the next block
        self._body: _TarBody | None = None
        self._extensions = _Extensions()
        self._expanded = 0  # bytes of all expanded sparse members
        self._ended_at: int | None = None  # offset of the end mark

    @property
    def position(self) -> int:
        """The offset in the archive at which the next block begins."""
        return self._base

    @property
    def end(self) -> int:
        """The offset of the end mark; without an end mark, the offset after the last byte."""
        return self._base if self._ended_at is None else self._ended_at

    @property
    def ended(self) -> bool:
        """Whether the end mark has been read."""
        return self._ended_at is not None

    @property
    def gap(self) -> int:
        """How many of the next bytes belong to no wanted member, as far as is known."""
        if self._body is None:
            return self._skip
        return 0 if self._body.keep else self._body.header.size - self._body.have

    def skip(self, count: int) -> None:
        """Skip the first `count` bytes of the gap: the next block begins after them."""
        if self._body is None:
            self._skip -= count
        else:
            self._body.have += count
        self._base += count
        self._dense = False  # the members are large

    def feed(self, block: Bytes, most_again: int = 0) -> Iterator[Members]:
        """Yield the members that end in this block.

        The receiver of a `MemberTable` may give back its last members, and then `again` is the number of bytes at the
        end of this block with which the next block has to begin. Members can be given back if the block ends with
        them, or within the member after them; if all of these have at most `most_again` bytes; and if no link, device
        or directory stands between them.
        """
        view = memoryview(block)
        position, length = 0, len(view)
        self.again = 0
        while position < length:
            if self._ended_at is not None:
                position = self._read_rest(view, position)
            if self._skip:
                skipped = min(self._skip, length - position)
                self._skip -= skipped
                position += skipped
            elif self._body is not None:
                position = self._body.add(view, position)
                yield from self._finish_body()
            elif self._partial or length - position < BLOCK:
                need = BLOCK - len(self._partial)
                self._partial += bytes(view[position : position + need])
                position = min(length, position + need)
                if len(self._partial) == BLOCK:
                    raw, self._partial = self._partial, b""
                    yield from self._read_header(raw, self._base + position - BLOCK)
            else:
                run = self._find_run(view, position, most_again)
                if run is not None:
                    self.ignored += run.ignored
                    self._skip = max(0, run.end - length)
                    position = min(run.end, length)
                    yield run.members
                    if run.members.given_back:
                        self._go_back(run.members, length)
                        return
                    continue
                raw = bytes(view[position : position + BLOCK])
                position += BLOCK
                yield from self._read_header(raw, self._base + position - BLOCK)
        if self._plain is not None and self._headers == "python":
            self._dense = self._plain.is_dense
        self._plain = None
        self._base += length

    def _find_run(self, view: memoryview, position: int, most_again: int) -> PlainRun | None:
        """Return the plain members from a position of the block on; None if there are none."""
        if self._extensions.offset is not None:
            return None  # the next header belongs to the member that extension headers describe
        if self._native is not None:
            return self._native.take(view, position, self._base, most_again)
        if self._headers == "careful":
            return None
        self._plain = self._plain or PlainMembers(view, position, self._base, self._limits, dense=self._dense)
        return self._plain.take(position)

    def _go_back(self, members: Members, length: int) -> None:
        """Let the next block, or the next walk, begin with the first member that was given back."""
        assert isinstance(members, MemberTable)
        self.again, self._skip = length - members.given_back_at, 0
        self._base += members.given_back_at

    def walk(self, file: FileBytes, stop: int, most: int) -> Members | None:
        """Find the next members in the file of this tar, without reading their bodies.

        Args:
            file: The tar.
            stop: Members that end later are not found.
            most: How many bytes to cover. The last member may end after them.

        Returns:
            Members whose `data` is the file. The next block, or the next walk, begins at `position`. None, and
            nothing is changed, if the next bytes have to be read as a block: members are small, or not plain.
        """
        body = self._body
        is_large = self._in_file if body is None else body.header.size >= _LARGE_BODY
        if self._native is None or self.ended or self._partial or self._extensions.offset is not None or not is_large:
            return None
        start = self._base + self._skip if body is None else body.offset
        run = self._native.take_from(file, start, stop, start + most)
        self._in_file = run is not None and run.end - start >= run.members.total * _LARGE_BODY // 2
        if run is None:
            return None
        self._body, self.ignored, self.again = None, self.ignored + run.ignored, 0
        self._base = min(run.end, stop)
        self._skip = run.end - self._base
        return run.members

    def finish(self) -> None:
        """Check that the archive is complete.

        Raises:
            TruncatedArchive: The bytes end inside a member or a header, or without an end mark.
        """
        extensions = self._extensions
        if self._body is not None:
            raise self._truncated(f"the archive ends within member {self._body.header.name!r}")
        if self._skip or self._partial:
            raise self._truncated("the archive ends within a block of 512 bytes")
        if extensions.sparse_header is not None:
            raise self._truncated(f"the archive ends within the map of {extensions.sparse_header.name!r}")
        if extensions.offset is not None:
            raise self._truncated("the archive ends behind an extension header")
        if self._ended_at is not None:
            if (self._base - self._ended_at) % BLOCK:
                raise self._truncated("the archive ends within its end mark")
        elif not self._allow_missing_end:
            raise self._truncated(
                "the archive ends without its end mark, so members may be missing; "
                "say allow_missing_end=True if it was written like this"
            )

    def _truncated(self, message: str) -> TruncatedArchive:
        return TruncatedArchive(message, shard=self._shard, offset=self._base)

    def _read_rest(self, view: memoryview, position: int) -> int:
        """Skip the zeros after the end mark; return where the next archive begins, if one is allowed to follow."""
        rest = bytes(view[position:])
        if rest == bytes(len(rest)):
            return len(view)
        position += len(rest) - len(rest.lstrip(b"\0"))
        if not self._allow_concatenated:
            raise ArchiveError(
                "there is more behind the end mark: the archive is damaged here, or several were concatenated; "
                "say allow_concatenated=True if they were",
                shard=self._shard,
                offset=self._base + position,
            )
        # The next header may begin with zeros that were skipped, even in an earlier block.
        self._partial, self._ended_at = bytes((self._base + position) % BLOCK), None
        return position

    def _read_header(self, raw: bytes, offset: int) -> Iterator[Members]:
        """Read one block of 512 bytes that belongs to headers; yield its member if the member has no bytes."""
        extensions = self._extensions
        if extensions.sparse_header is not None:
            extensions.size += BLOCK
            self._check_limit("header_bytes", extensions.size, "a header", offset)
            self._read_sparse_map(raw, offset, extensions.sparse_header)
        elif raw == ZERO_BLOCK:
            if extensions.offset is not None:
                raise ArchiveError("the end mark stands behind an extension header", shard=self._shard, offset=offset)
            self._ended_at = offset
        else:
            self._begin_body(parse_header(raw, self._shard, offset), raw, offset)
        yield from self._finish_body()

    def _begin_body(self, header: Header, raw: bytes, offset: int) -> None:
        extensions = self._extensions
        if extensions.offset is None:
            extensions.offset = offset
        if header.kind in _EXTENSIONS:
            extensions.size += header.size
            self._check_limit("header_bytes", extensions.size, "a header", offset)
            self._body = _TarBody(header, offset, keep=True)
        elif header.kind is Kind.SPARSE:
            extensions.sparse = SparseMember(gnu_real_size(raw, self._shard, offset), [], self._shard, offset)
            extensions.sparse_header = header
            self._read_sparse_map(raw, offset, header, is_header=True)
        else:
            self._begin_member(header, offset)

    def _read_sparse_map(self, raw: bytes, offset: int, header: Header, *, is_header: bool = False) -> None:
        """Read one block of an old GNU map: the header itself, or a block after it. The body follows the last one."""
        sparse = self._extensions.sparse
        assert sparse is not None
        assert sparse.parts is not None
        parts, more = gnu_parts(raw, self._shard, offset, is_header=is_header)
        sparse.parts += parts
        if not more:
            self._extensions.sparse_header = None
            self._begin_member(Header(Kind.FILE, header.name, header.size), offset)

    def _begin_member(self, header: Header, offset: int) -> None:
        """Begin the body of a member, which its header and the extension headers before it describe."""
        extensions, self._extensions = self._extensions, _Extensions()
        pax, sparse = extensions.pax, extensions.sparse
        assert extensions.offset is not None
        is_file = header.kind in (Kind.FILE, Kind.V7_FILE)
        if is_file and is_sparse(pax):
            if sparse is not None:
                raise UnsupportedArchive("a member is sparse in two ways", shard=self._shard, offset=offset)
            sparse = pax_sparse(pax, self._shard, offset)
        stated_name = pax.get(b"GNU.sparse.name") or extensions.long_name or pax.get(b"path")
        name = decode_name(stated_name) if stated_name else header.name
        size = header.size
        if header.kind is Kind.V7_FILE and name.endswith("/"):
            is_file, size = False, 0
        if is_file and pax.get(b"size"):
            size = int(pax[b"size"])
        keep = is_file and (self._wanted is None or self._wanted(name))
        self._check_limit("name_bytes", len(name.encode("utf-8", "surrogateescape")), "a header", offset)
        if keep:
            self._check_limit("member_bytes", size, f"member {name!r}", offset)
            if sparse is not None:
                self._check_limit("member_bytes", sparse.real_size, f"member {name!r}", offset)
        if not is_file:
            self.ignored += 1
        kind = Kind.FILE if is_file else Kind.IGNORED
        self._body = _TarBody(Header(kind, name, size), extensions.offset, keep, sparse)

    def _finish_body(self) -> Iterator[Members]:
        """Use the body if it is complete: yield its member, or read it as an extension header."""
        body = self._body
        if body is None or body.have < body.header.size:
            return
        self._body = None
        kind = body.header.kind
        self._skip = -body.header.size % BLOCK
        content = body.content.whole()
        if kind is Kind.PAX:
            self._extensions.pax = parse_pax(content, self._shard, body.offset)
        elif kind is Kind.GLOBAL_PAX:
            self._read_global(parse_pax(content, self._shard, body.offset), body.offset)
        elif kind is Kind.LONG_NAME:
            self._extensions.long_name = content.partition(b"\0")[0]
        elif kind is Kind.FILE:
            if body.sparse is not None and body.keep:
                content = self._expand(body.sparse, content)
            # The body of an unwanted member was not kept: the member is handed out with no bytes.
            yield ListedMembers([body.header.name], [body.offset], [0], [len(content)], content)

    def _expand(self, sparse: SparseMember, stored: bytes) -> bytes:
        self._expanded += sparse.real_size
        if self._expanded > self._limits.sparse_bytes:
            raise LimitExceeded(
                f"sparse members have become {self._expanded:,} bytes; Limits.sparse_bytes is "
                f"{self._limits.sparse_bytes:,}",
                shard=self._shard,
                offset=sparse.offset,
            )
        return sparse.expand(stored, self._limits.header_bytes)

    def _read_global(self, records: dict[bytes, bytes], offset: int) -> None:
        """Check that a global PAX header does not change how members are read. Its other records are ignored."""
        if b"size" in records or is_sparse(records):
            raise UnsupportedArchive(
                "a global PAX header sets the size of all members", shard=self._shard, offset=offset
            )
        if self._extensions.pax or self._extensions.long_name is not None:
            raise ArchiveError(
                "a global PAX header stands between a member and a header that speaks of it",
                shard=self._shard,
                offset=offset,
            )
        self._extensions = _Extensions()

    def _check_limit(self, name: str, value: int, subject: str, offset: int) -> None:
        check_limit(self._limits, name, value, subject, self._shard, offset)
