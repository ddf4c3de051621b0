"""tar, read from blocks of bytes cut anywhere: ustar, GNU, PAX, star and v7; it does no I/O.

Plain headers are taken many at once, from a HeaderTable, or a HeaderWalk where they are few; anything else (PAX, long
names, base-256, v7, an odd header, a body that the block does not hold whole) goes header by header. All of them
give the same members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from ais_tar2tf.archive._content import Content
from ais_tar2tf.archive._members import Bytes, Members, Wanted
from ais_tar2tf.archive._tar_header import (
    BLOCK,
    ZERO_BLOCK,
    Header,
    Kind,
    decode_name,
    is_time_only_pax,
    parse_header,
    parse_pax,
)
from ais_tar2tf.archive._tar_sparse import Sparse, gnu_parts, gnu_real_size, is_sparse, pax_sparse
from ais_tar2tf.archive._tar_table import LONGEST_NAME, HeaderTable
from ais_tar2tf.archive._tar_walk import HeaderWalk
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["TarReader"]

Headers = Literal["auto", "table", "walk", "careful"]
"""How headers are found. All of them give the same members; `auto` takes what is quickest."""

_SPARSE_ROWS = 32  # for each header: with members above 16 KB, walking is quicker than a table of all rows
_PAX_TYPE = ord("x")
_FILE_TYPE = ord("0")
_EXTENSIONS = frozenset({Kind.PAX, Kind.GLOBAL_PAX, Kind.LONG_NAME, Kind.LONG_LINK})


class _Body:
    """The body of one member, or of one extension header, that comes in several blocks."""

    __slots__ = ("content", "have", "header", "keep", "offset", "sparse")

    def __init__(self, header: Header, offset: int, keep: bool, sparse: Sparse | None = None) -> None:
        self.header = header
        self.offset = offset
        self.keep = keep
        self.sparse = sparse
        self.content = Content(header.size)
        self.have = 0

    def take(self, block: memoryview, position: int) -> int:
        """Take what `block` has of the body, and say where it stopped."""
        end = min(len(block), position + self.header.size - self.have)
        if self.keep:
            self.content.add(block[position:end])
        self.have += end - position
        return end


class TarReader:
    """Members of one tar. `start` is the offset of a header in it, when the bytes do not begin with the first."""

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
        self._shard = shard
        self._limits = limits
        self._wanted = wanted
        self._allow_missing_end = allow_missing_end
        self._allow_concatenated = allow_concatenated
        # What the table vouches for keeps to these limits by its form, unless they are tiny.
        tight = limits.name_bytes < LONGEST_NAME or limits.header_bytes < 2 * BLOCK
        self._headers = "careful" if tight else headers
        self._dense = headers != "walk"  # many headers a block, as far as was seen
        self._base = start  # offset in the archive of the block's first byte
        self._skip = 0  # bytes that nobody wants, before the next header
        self._partial = b""  # a header that the last block cut
        self._body: _Body | None = None
        self._extended_at: int | None = None  # where the headers that extend the next one began
        self._extension_bytes = 0
        self._long_name: bytes | None = None
        self._pax: dict[bytes, bytes] = {}
        self._sparse: Sparse | None = None  # of the next member
        self._sparse_header: Header | None = None  # while blocks behind it go on with its map
        self._expanded = 0  # bytes that sparse members became
        self._ended_at: int | None = None

    def feed(self, block: Bytes) -> Iterator[Members]:
        view = memoryview(block)
        position, length = 0, len(view)
        table: HeaderTable | HeaderWalk | None = None
        table_start = 0
        while position < length:
            if self._ended_at is not None:
                position = self._read_rest(view, position)
            if self._skip:
                taken = min(self._skip, length - position)
                self._skip -= taken
                position += taken
            elif self._body is not None:
                position = self._body.take(view, position)
                yield from self._finish_body()
            elif self._partial or length - position < BLOCK:
                need = BLOCK - len(self._partial)
                self._partial += bytes(view[position : position + need])
                position = min(length, position + need)
                if len(self._partial) == BLOCK:
                    raw, self._partial = self._partial, b""
                    yield from self._careful(raw, self._base + position - BLOCK)
            else:
                if table is None and self._headers != "careful":
                    table_start = position
                    table = (HeaderTable if self._dense else HeaderWalk)(view, position, self._limits.member_bytes)
                if table is not None and self._extended_at is None:
                    members, position = self._take_run(view, position, table, table_start)
                    if members is not None:
                        yield members
                        continue
                raw = bytes(view[position : position + BLOCK])
                position += BLOCK
                yield from self._careful(raw, self._base + position - BLOCK)
        if table is not None and self._headers == "auto":
            self._dense = len(table.rows) * _SPARSE_ROWS > (length - table_start) // BLOCK
        self._base += length

    @property
    def end(self) -> int:
        """Where the end mark begins; as far as bytes came, where there was none yet."""
        return self._base if self._ended_at is None else self._ended_at

    @property
    def ended(self) -> bool:
        """Whether the end mark came."""
        return self._ended_at is not None

    @property
    def gap(self) -> int:
        """How many of the bytes that come next nobody will look at, as far as is known."""
        if self._body is None:
            return self._skip
        return 0 if self._body.keep else self._body.header.size - self._body.have

    def pass_over(self, count: int) -> None:
        """So many bytes of the gap will not be fed."""
        if self._body is None:
            self._skip -= count
        else:
            self._body.have += count
        self._base += count
        self._dense = False  # members are large here

    def finish(self) -> None:
        where = self._base
        if self._body is not None:
            name = self._body.header.name
            raise self._truncated(f"the archive ends within member {name!r}", where)
        if self._skip or self._partial:
            raise self._truncated("the archive ends within a block of 512 bytes", where)
        if self._sparse_header is not None:
            raise self._truncated(f"the archive ends within the map of {self._sparse_header.name!r}", where)
        if self._extended_at is not None:
            raise self._truncated("the archive ends behind an extension header", where)
        if self._ended_at is not None:
            if (where - self._ended_at) % BLOCK:
                raise self._truncated("the archive ends within its end mark", where)
        elif not self._allow_missing_end:
            raise self._truncated(
                "the archive ends without its end mark, so members may be missing; "
                "say allow_missing_end=True if it was written like this",
                where,
            )

    def _truncated(self, message: str, offset: int) -> TruncatedArchive:
        return TruncatedArchive(message, shard=self._shard, offset=offset)

    def _read_rest(self, view: memoryview, position: int) -> int:
        """Pass the zeros behind the end mark, up to the next archive where that is allowed."""
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
        into = (self._base + position) % BLOCK  # the block's beginning may have been another view's
        self._partial, self._ended_at = bytes(into), None
        return position

    # Many plain members at once.

    def _take_run(
        self, view: memoryview, position: int, table: HeaderTable | HeaderWalk, start: int
    ) -> tuple[Members | None, int]:
        """The members of a chain of plain headers that the block holds whole, and where they end."""
        length = len(view)
        run = table.run((position - start) // BLOCK, (length - start) // BLOCK)
        if run and start + (table.rows[run[-1]] + 1) * BLOCK + table.sizes[run[-1]] > length:
            run = run[:-1]
        while run and not table.only_files and table.types[run[-1]] == _PAX_TYPE:
            run = run[:-1]
        if not run:
            return None, position
        if isinstance(run, range) and table.only_files:
            chosen = slice(run.start, run.stop)
            places = np.array(table.rows[chosen], np.int64) * BLOCK + start
            members = Members(
                _decode_all(table.names[chosen]),
                (places + self._base).tolist(),
                (places + BLOCK).tolist(),
                table.sizes[chosen],
                view,
            )
        else:
            members, run = self._pick(view, run, table, start)
            if not run:
                return None, position
        last = run[-1]
        end = start + (table.rows[last] + 1 + -(-table.sizes[last] // BLOCK)) * BLOCK
        self._skip = max(0, end - length)
        return members, min(end, length)

    def _pick(
        self, view: memoryview, run: Sequence[int], table: HeaderTable | HeaderWalk, start: int
    ) -> tuple[Members, Sequence[int]]:
        """The files of a run with other things between them, and how far it could be read like that."""
        names, offsets, starts, sizes = list[bytes](), list[int](), list[int](), list[int]()
        rows, kinds, raw_names = table.rows, table.types, table.names
        extended: int | None = None  # where the PAX header before this one began
        path: bytes | None = None  # which it states
        for at, index in enumerate(run):
            begin = start + rows[index] * BLOCK
            kind = kinds[index]
            if kind == _PAX_TYPE:
                size = table.sizes[index]
                simple, path = True, None
                if not is_time_only_pax(view, begin + BLOCK, begin + BLOCK + size):
                    simple, path = self._simple_pax(view, begin + BLOCK, size)
                if not simple or extended is not None:
                    run = run[: at - 1 if extended is not None else at]
                    break
                extended = begin
                continue
            if kind == _FILE_TYPE:
                names.append(path or raw_names[index])
                offsets.append(self._base + (begin if extended is None else extended))
                starts.append(begin + BLOCK)
                sizes.append(table.sizes[index])
            else:
                self.ignored += 1
            extended = path = None
        return Members(_decode_all(names), offsets, starts, sizes, view), run

    def _simple_pax(self, view: memoryview, begin: int, size: int) -> tuple[bool, bytes | None]:
        """Whether a PAX header leaves the layout as it is, and the path it states. What is wrong with one that
        is malformed, the careful path says when the members before it are out."""
        if size > self._limits.name_bytes or size > self._limits.header_bytes:
            return False, None
        try:
            found = parse_pax(bytes(view[begin : begin + size]), self._shard, 0)
        except ArchiveError:
            return False, None
        if b"size" in found or any(key.startswith(b"GNU.") for key in found):
            return False, None
        return True, found.get(b"path")

    # One header at a time.

    def _careful(self, raw: bytes, offset: int) -> Iterator[Members]:
        if self._sparse_header is not None:
            yield from self._read_sparse(raw, offset)
            return
        if raw == ZERO_BLOCK:
            if self._extended_at is not None:
                raise ArchiveError("the end mark stands behind an extension header", shard=self._shard, offset=offset)
            self._ended_at = offset
            return
        header = parse_header(raw, self._shard, offset)
        if self._extended_at is None:
            self._extended_at = offset
        if header.kind in _EXTENSIONS:
            self._extension_bytes += header.size
            self._check_limit("header_bytes", self._extension_bytes, offset)
            self._body = _Body(header, offset, keep=True)
        elif header.kind is Kind.SPARSE:
            self._sparse = Sparse(gnu_real_size(raw, self._shard, offset), [], self._shard, offset)
            self._sparse_header = header
            yield from self._read_sparse(raw, offset, is_header=True)
        else:
            self._begin_member(header, offset)
        if self._body is not None and not self._body.header.size:
            yield from self._finish_body()

    def _read_sparse(self, raw: bytes, offset: int, *, is_header: bool = False) -> Iterator[Members]:
        """One block of an old GNU map: the header itself, or one behind it."""
        header, sparse = self._sparse_header, self._sparse
        assert header is not None
        assert sparse is not None
        assert sparse.parts is not None
        if not is_header:
            self._extension_bytes += BLOCK
            self._check_limit("header_bytes", self._extension_bytes, offset)
        parts, more = gnu_parts(raw, self._shard, offset, is_header=is_header)
        sparse.parts += parts
        if more:
            return
        self._sparse_header = None
        self._begin_member(Header(Kind.FILE, header.name, header.size), offset)
        if self._body is not None and not self._body.header.size:
            yield from self._finish_body()

    def _begin_member(self, header: Header, offset: int) -> None:
        """Start the body of the member that `header`, with what extends it, speaks of."""
        pax, long_name, began, sparse = self._pax, self._long_name, self._extended_at, self._sparse
        assert began is not None
        self._pax, self._long_name, self._extended_at, self._extension_bytes = {}, None, None, 0
        self._sparse = None
        is_file = header.kind in (Kind.FILE, Kind.V7_FILE)
        if is_file and is_sparse(pax):
            if sparse is not None:
                raise UnsupportedArchive("a member is sparse in two ways", shard=self._shard, offset=offset)
            sparse = pax_sparse(pax, self._shard, offset)
        stated = pax.get(b"GNU.sparse.name") or long_name or pax.get(b"path")
        name = decode_name(stated) if stated else header.name
        is_file = is_file and not (header.kind is Kind.V7_FILE and name.endswith("/"))
        size = 0 if header.kind is Kind.V7_FILE and not is_file else header.size
        if is_file and pax.get(b"size"):
            size = int(pax[b"size"])
        keep = is_file and (self._wanted is None or self._wanted(name))
        self._check_limit("name_bytes", len(name.encode("utf-8", "surrogateescape")), offset)
        if keep:
            self._check_limit("member_bytes", size, offset, name)
            if sparse is not None:
                self._check_limit("member_bytes", sparse.real_size, offset, name)
        if not is_file:
            self.ignored += 1
        kind = Kind.FILE if is_file else Kind.IGNORED
        self._body = _Body(Header(kind, name, size), began, keep, sparse)

    def _finish_body(self) -> Iterator[Members]:
        body = self._body
        if body is None or body.have < body.header.size:
            return
        self._body = None
        header = body.header
        self._skip = -header.size % BLOCK
        content = body.content.whole()
        if header.kind is Kind.PAX:
            self._pax = parse_pax(content, self._shard, body.offset)
        elif header.kind is Kind.GLOBAL_PAX:
            self._check_global(parse_pax(content, self._shard, body.offset), body.offset)
        elif header.kind is Kind.LONG_NAME:
            self._long_name = content.partition(b"\0")[0]
        elif header.kind is Kind.FILE:
            if body.sparse is not None and body.keep:
                content = self._expand(body.sparse, content)
            # A body that nobody wanted was not kept: its member is told with no bytes behind it.
            yield Members([header.name], [body.offset], [0], [len(content)], content)

    def _expand(self, sparse: Sparse, stored: bytes) -> bytes:
        self._expanded += sparse.real_size
        if self._expanded > self._limits.sparse_bytes:
            raise LimitExceeded(
                f"sparse members have become {self._expanded:,} bytes; Limits.sparse_bytes is "
                f"{self._limits.sparse_bytes:,}",
                shard=self._shard,
                offset=sparse.offset,
            )
        return sparse.expand(stored, self._limits.header_bytes)

    def _check_global(self, records: dict[bytes, bytes], offset: int) -> None:
        """A global header is a remark to us, unless it would change how the members after it are read."""
        if b"size" in records or is_sparse(records):
            raise UnsupportedArchive(
                "a global PAX header sets the size of all members", shard=self._shard, offset=offset
            )
        if self._pax or self._long_name is not None:
            raise ArchiveError(
                "a global PAX header stands between a member and a header that speaks of it",
                shard=self._shard,
                offset=offset,
            )
        self._extended_at = None
        self._extension_bytes = 0

    def _check_limit(self, name: str, value: int, offset: int, member: str = "") -> None:
        limit: int = getattr(self._limits, name)
        if value > limit:
            of = f"member {member!r}" if member else "a header"
            raise LimitExceeded(
                f"{of} has {value:,} bytes, Limits.{name} is {limit:,}", shard=self._shard, offset=offset
            )


def _decode_all(names: list[bytes]) -> list[str]:
    return decode_name(b"\0".join(names)).split("\0") if names else []
