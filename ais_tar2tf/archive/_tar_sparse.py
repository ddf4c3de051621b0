"""Sparse members of a tar: which parts of a file are in the archive, what lies between them is zeros.

Old GNU   four (offset, bytes) in the header, more in blocks behind it; the whole size at 483
PAX 0.0   GNU.sparse.size, and GNU.sparse.offset and GNU.sparse.numbytes once for each part
PAX 0.1   GNU.sparse.size, and GNU.sparse.map: offset,bytes,offset,bytes…
PAX 1.0   GNU.sparse.realsize; the map stands before the parts: their number, then offset and bytes, a line each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import SEEK_END, BytesIO

from ais_tar2tf.archive._tar_header import BLOCK, SPARSE_MAP, parse_number
from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = ["Sparse", "gnu_parts", "gnu_real_size", "is_sparse", "pax_sparse"]

Parts = list[tuple[int, int]]
_PREFIX = b"GNU.sparse"
_ENTRY = 24  # bytes of an entry in a header: two numbers
_HEADER_ENTRIES, _HEADER_MORE = range(386, 386 + 4 * _ENTRY, _ENTRY), 482
_BLOCK_ENTRIES, _BLOCK_MORE = range(0, 21 * _ENTRY, _ENTRY), 504
_DIGITS = 20  # of a number in a map: more than any size has
_NEWLINE = b"\n"


@dataclass(slots=True)
class Sparse:
    """What a sparse member is when it is whole."""

    real_size: int
    parts: Parts | None  # None: they stand before its bytes
    shard: str
    offset: int

    def expand(self, stored: bytes, map_bytes: int) -> bytes:
        """The whole file; a map in front of the stored bytes may take `map_bytes`."""
        parts, at = self.parts, 0
        if parts is None:
            parts, at = self._parts_in_front(stored, map_bytes)
        self._check(parts, len(stored) - at)
        whole, view = BytesIO(), memoryview(stored)
        for begin, length in parts:
            whole.seek(begin)  # what is passed over becomes zeros
            whole.write(view[at : at + length])
            at += length
        _fill(whole, self.real_size)
        return whole.getvalue()

    def _parts_in_front(self, stored: bytes, map_bytes: int) -> tuple[Parts, int]:
        """The map, and where the bytes behind it begin."""
        head = stored[:map_bytes]
        first, _, rest = head.partition(_NEWLINE)
        count = 2 * int(first) if _is_number(first) else len(head)
        lines = rest.split(_NEWLINE, count) if count < len(head) else []
        if len(lines) <= count or not all(map(_is_number, lines[:count])):
            raise self._error(f"its map is damaged, or longer than {map_bytes:,} bytes (Limits.header_bytes)")
        numbers = list(map(int, lines[:count]))
        at = len(head) - len(lines[count])
        return _pairs(numbers), at + -at % BLOCK

    def _check(self, parts: Parts, stored: int) -> None:
        free = 0
        for begin, length in parts:
            if begin < free or length < 0:
                raise self._error("its parts lie over each other")
            free = begin + length
        if free > self.real_size:
            raise self._error(f"its parts end at {free:,}, behind its {self.real_size:,} bytes")
        total = sum(length for _, length in parts)
        if total != stored:
            raise self._error(f"its parts have {total:,} bytes, and {stored:,} are there")

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(f"a sparse member is not in order: {message}", shard=self.shard, offset=self.offset)


def _fill(file: BytesIO, size: int) -> None:
    """Zeros behind its end, up to `size` bytes."""
    if file.seek(0, SEEK_END) < size:
        file.seek(size - 1)
        file.write(b"\0")


def _pairs(numbers: Sequence[int]) -> Parts:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def gnu_real_size(header: bytes, shard: str, offset: int) -> int:
    if header[257:265] != b"ustar  \0":
        raise UnsupportedArchive("a sparse member of another kind than GNU's", shard=shard, offset=offset)
    size = parse_number(header[483:495], "whole size", shard, offset)
    if size < 0:
        raise ArchiveError(f"a sparse member says a negative size: {size}", shard=shard, offset=offset)
    return size


def gnu_parts(raw: bytes, shard: str, offset: int, *, is_header: bool) -> tuple[Parts, bool]:
    """The parts that a header, or a block behind it, tells of; whether another block follows."""
    parts: Parts = []
    for at in _HEADER_ENTRIES if is_header else _BLOCK_ENTRIES:
        if not raw[at]:  # the first that is not used ends the list
            break
        begin = parse_number(raw[at : at + 12], "sparse offset", shard, offset)
        length = parse_number(raw[at + 12 : at + 24], "sparse length", shard, offset)
        if begin < 0 or length < 0:
            raise ArchiveError("a sparse map has a negative number", shard=shard, offset=offset)
        parts.append((begin, length))
    return parts, bool(raw[_HEADER_MORE if is_header else _BLOCK_MORE])


def is_sparse(pax: Mapping[bytes, bytes]) -> bool:
    return any(key.startswith(_PREFIX) for key in pax)


def pax_sparse(pax: Mapping[bytes, bytes], shard: str, offset: int) -> Sparse:
    """What PAX records say of the member behind them."""
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
        return Sparse(int(stated), None, shard, offset)
    words = text.split(b",") if text else []
    count = pax.get(b"GNU.sparse.numblocks")
    if len(words) % 2 or not all(map(_is_number, words)) or (count or b"0").strip() != b"%d" % (len(words) // 2):
        raise ArchiveError("a sparse map is malformed", shard=shard, offset=offset)
    return Sparse(int(stated), _pairs(list(map(int, words))), shard, offset)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS
