"""Reads sparse members of a tar. A tar stores only parts of a sparse file; zeros lie between the parts. No I/O.

A sparse member has a map of its parts. For each part, the map states the part's offset in the file, and its length.
In this module, a block is a tar block of 512 bytes. This table lists the four formats of sparse members. Names that
begin with GNU.sparse are keys of PAX records:

format    size of the file      map
Old GNU   byte 483 of header    up to 4 pairs (offset, length) in the header, up to 21 in each block after it
PAX 0.0   GNU.sparse.size       GNU.sparse.offset and GNU.sparse.numbytes, once for each part
PAX 0.1   GNU.sparse.size       GNU.sparse.map: offset,length,offset,length…
PAX 1.0   GNU.sparse.realsize   before the parts, one number in each line: how many parts, then offset, length, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import SEEK_END, BytesIO

from ais_tar2tf.archive.tar_header import BLOCK, SPARSE_MAP, parse_number
from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = ["SparseMember", "gnu_parts", "gnu_real_size", "is_sparse", "pax_sparse"]

Parts = list[tuple[int, int]]
_PREFIX = b"GNU.sparse"
_ENTRY = 24  # bytes of an entry of an old GNU map: an offset and a length
# The first line is about a header, the second about a block of the map after the header. Each line has the offsets of
# the entries, and then the offset of a byte that is not 0 if another block of the map follows.
_HEADER_ENTRIES, _HEADER_CONTINUES = range(386, 386 + 4 * _ENTRY, _ENTRY), 482
_BLOCK_ENTRIES, _BLOCK_CONTINUES = range(0, 21 * _ENTRY, _ENTRY), 504
_MAX_DIGITS = 20  # the most digits of a number in a PAX map; the size of any file has fewer
_NEWLINE = b"\n"


@dataclass(slots=True)
class SparseMember:
    """The size of a sparse file, and the map of its stored parts.

    The caller must bound `real_size`, because `expand` makes a file of this size.
    """

    real_size: int  # bytes of the whole file
    parts: Parts | None  # the map; None if the map is at the beginning of the stored bytes
    shard: str  # for errors
    offset: int  # offset of the member in the shard, for errors

    def expand(self, stored: bytes, map_bytes: int) -> bytes:
        """Return the whole file, with its zeros.

        Args:
            stored: The stored bytes of the member.
            map_bytes: The largest permitted size of the map in bytes, if the map is in the stored bytes.
        """
        parts, at = self.parts, 0
        if parts is None:
            parts, at = self._parse_map(stored, map_bytes)
        self._check_parts(parts, len(stored) - at)
        whole, view = BytesIO(), memoryview(stored)
        for begin, length in parts:
            whole.seek(begin)  # the next write fills the gap with zeros
            whole.write(view[at : at + length])
            at += length
        if whole.seek(0, SEEK_END) < self.real_size:  # zeros at the end of the file, after the last part
            whole.seek(self.real_size - 1)
            whole.write(b"\0")
        return whole.getvalue()

    def _parse_map(self, stored: bytes, map_bytes: int) -> tuple[Parts, int]:
        """Return the map at the beginning of the stored bytes, and the offset in `stored` of the first part."""
        head = stored[:map_bytes]
        first, _, rest = head.partition(_NEWLINE)
        count = 2 * int(first) if _is_number(first) else len(head)
        lines = rest.split(_NEWLINE, count) if count < len(head) else []
        if len(lines) <= count or not all(map(_is_number, lines[:count])):
            raise self._error(f"its map is damaged, or longer than {map_bytes:,} bytes (Limits.header_bytes)")
        numbers = list(map(int, lines[:count]))
        at = len(head) - len(lines[count])
        return _pairs(numbers), at + -at % BLOCK

    def _check_parts(self, parts: Parts, stored_bytes: int) -> None:
        """Check that the parts are in order, lie within the file, and have `stored_bytes` bytes together."""
        end = 0
        for begin, length in parts:
            if begin < end or length < 0:
                raise self._error("its parts overlap")
            end = begin + length
        if end > self.real_size:
            raise self._error(f"its parts end at byte {end:,}, but the file has {self.real_size:,} bytes")
        total = sum(length for _, length in parts)
        if total != stored_bytes:
            raise self._error(f"its map lists {total:,} bytes of parts, but {stored_bytes:,} bytes are stored")

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(f"a sparse member is damaged: {message}", shard=self.shard, offset=self.offset)


def _pairs(numbers: Sequence[int]) -> Parts:
    """Return the parts of a map whose numbers are offset, length, offset, length and so on."""
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def gnu_real_size(header: bytes, shard: str, offset: int) -> int:
    """Return the size of a sparse file, as its old GNU header states it."""
    if header[257:265] != b"ustar  \0":
        raise UnsupportedArchive("a sparse member that is not in the format of GNU tar", shard=shard, offset=offset)
    size = parse_number(header[483:495], "whole size", shard, offset)
    if size < 0:
        raise ArchiveError(f"a sparse member says a negative size: {size}", shard=shard, offset=offset)
    return size


def gnu_parts(raw: bytes, shard: str, offset: int, *, is_header: bool) -> tuple[Parts, bool]:
    """Return the parts that `raw` lists, and whether another block of the map follows.

    Args:
        raw: The header of an old GNU member, or a block of the map after the header.
        shard: The shard, for errors.
        offset: The offset of the member in the shard, for errors.
        is_header: Whether `raw` is the header.
    """
    parts: Parts = []
    for at in _HEADER_ENTRIES if is_header else _BLOCK_ENTRIES:
        if not raw[at]:  # the first unused entry ends the list
            break
        begin = parse_number(raw[at : at + 12], "sparse offset", shard, offset)
        length = parse_number(raw[at + 12 : at + 24], "sparse length", shard, offset)
        if begin < 0 or length < 0:
            raise ArchiveError("a sparse map has a negative number", shard=shard, offset=offset)
        parts.append((begin, length))
    return parts, bool(raw[_HEADER_CONTINUES if is_header else _BLOCK_CONTINUES])


def is_sparse(pax: Mapping[bytes, bytes]) -> bool:
    """Return whether PAX records describe a sparse member."""
    return any(key.startswith(_PREFIX) for key in pax)


def pax_sparse(pax: Mapping[bytes, bytes], shard: str, offset: int) -> SparseMember:
    """Return the sparse member that PAX records describe.

    The records must come from `parse_pax`, which converts a map of format 0.0 to a map of format 0.1.
    """
    version = (pax.get(b"GNU.sparse.major", b""), pax.get(b"GNU.sparse.minor", b""))
    stated = pax.get(b"GNU.sparse.realsize") or pax.get(b"GNU.sparse.size") or b""
    text = pax.get(SPARSE_MAP)
    if version not in ((b"1", b"0"), (b"0", b"1"), (b"0", b"0"), (b"", b"")) or not _is_number(stated):
        raise UnsupportedArchive(
            "a sparse member of an unknown version, or without its size; write the archive again without --sparse",
            shard=shard,
            offset=offset,
        )
    if version == (b"1", b"0"):
        return SparseMember(int(stated), None, shard, offset)
    words = text.split(b",") if text else []
    count = pax.get(b"GNU.sparse.numblocks")
    if len(words) % 2 or not all(map(_is_number, words)) or (count or b"0").strip() != b"%d" % (len(words) // 2):
        raise ArchiveError("a sparse map is malformed", shard=shard, offset=offset)
    return SparseMember(int(stated), _pairs(list(map(int, words))), shard, offset)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MAX_DIGITS
