"""Parsers of the records of a zip, one function for each kind. This module must not do I/O.

In this module, a record is a structure of the zip format, not a record of a data set. A zip has these records, in
this order:

local header        before each member
data descriptor     after a member whose local header left out its checksum and sizes
central entry       one for each member; all of them together are the directory
zip64 end, locator  only in a zip whose numbers need 64 bits; the locator states where the zip64 end is
end                 the size and the offset of the directory, and a comment

Numbers are little-endian. If a number does not fit its field, the field is 0xFFFF or 0xFFFFFFFF. The number is then
in an extra field of the same record, called zip64. The end has no extra field: its large
numbers are in the zip64 end.
"""

from __future__ import annotations

import stat
import struct
import zlib
from dataclasses import dataclass
from typing import NoReturn

from xxhash import xxh3_128_intdigest

from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = [
    "CENTRAL",
    "DEFLATED",
    "END",
    "END64",
    "END64_BYTES",
    "END_BYTES",
    "LOCAL",
    "LOCATOR",
    "LOCATOR_BYTES",
    "LONGEST_DESCRIPTOR",
    "LONGEST_FIXED",
    "STORED",
    "DirectoryEnd",
    "ZipEntry",
    "find_end",
    "parse_central",
    "parse_end",
    "parse_end64",
    "parse_local",
    "parse_locator",
    "record_bytes",
]

LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
END, END64, LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
STORED, DEFLATED = 0, 8
_DESCRIPTOR = b"PK\x07\x08"
LONGEST_DESCRIPTOR = 24  # bytes: a signature, a checksum and two sizes of 64 bits
_LOCAL = struct.Struct("<4s5H3I2H")  # signature, version, flags, method, time, date, crc, packed, size, name, extra
# The fields of the local header, but with two versions. At the end: the lengths of name, extra and comment, then the
# disk, the internal and external attributes, and the offset of the local header.
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")  # signature, disk, disk of directory, entries here, entries, size, offset, comment
_END64 = struct.Struct("<4sQ2H2I4Q")  # signature, bytes, versions, disks, entries here, entries, size, offset
_LOCATOR = struct.Struct("<4sIQI")  # signature, disk, offset of END64, disks
END_BYTES, END64_BYTES, LOCATOR_BYTES = _END.size, _END64.size, _LOCATOR.size
_FIXED = {LOCAL: _LOCAL, CENTRAL: _CENTRAL, END: _END, END64: _END64, LOCATOR: _LOCATOR}
LONGEST_FIXED = _END64.size  # a `head` of at least this length makes the result of `record_bytes` exact
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075  # extra fields
_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13  # flags of an encrypted member: simple, strong, with encrypted names
_HAS_DESCRIPTOR, _PATCH, _UTF8 = 1 << 3, 1 << 5, 1 << 11
_METHODS = {1: "shrunk", 6: "imploded", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}
_UNIX = 3  # the number of Unix among the systems on which a zip was made


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """The description of one member by its local header or by its central entry."""

    name: str
    raw_name: bytes
    offset: int  # offset of the local header
    method: int
    crc: int
    packed: int  # bytes in the archive
    size: int  # bytes when unpacked
    has_descriptor: bool  # if true, the local header may leave out the checksum and the sizes
    is_link: bool = False  # always False if a local header was parsed, which does not state it

    @property
    def is_file(self) -> bool:
        """Whether the member is neither a directory nor a symbolic link."""
        return not self.is_link and not self.name.endswith("/")

    @property
    def descriptors(self) -> frozenset[bytes]:
        """All valid data descriptors of the member: with or without a signature, with sizes of 32 or 64 bits."""
        wide = struct.pack("<I2Q", self.crc, self.packed, self.size)
        found = {wide, _DESCRIPTOR + wide}
        if max(self.packed, self.size) <= _FULL_32:
            narrow = struct.pack("<3I", self.crc, self.packed, self.size)
            found |= {narrow, _DESCRIPTOR + narrow}
        return frozenset(found)

    @property
    def fingerprint(self) -> int:
        """A hash of everything on which the local header and the central entry must agree."""
        numbers = struct.pack("<QHIQQ", self.offset, self.method, self.crc, self.packed, self.size)
        return xxh3_128_intdigest(numbers + self.raw_name)


@dataclass(frozen=True, slots=True)
class DirectoryEnd:
    """The size and the position of the directory, as the end of the zip states them."""

    entries: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class _RecordPlace:
    """The shard and the offset of a record; raises errors about that record."""

    shard: str
    offset: int

    def fail(self, message: str) -> NoReturn:
        raise ArchiveError(message, shard=self.shard, offset=self.offset)

    def refuse(self, message: str) -> NoReturn:
        raise UnsupportedArchive(message, shard=self.shard, offset=self.offset)


def record_bytes(head: bytes, shard: str, offset: int) -> int:
    """Return the length of the record that begins with `head`.

    If `head` is too short to state the length, return a number that is greater than `len(head)` and not greater than
    the length. The caller must then call this function again, with at least this number of bytes of the record.

    Raises:
        ArchiveError: No record begins with these bytes, or the record states a length that is too small for it.
        UnsupportedArchive: The zip has several volumes, or an encrypted directory.
    """
    signature = head[:4]
    if len(signature) < 4:
        return 4
    fixed = _FIXED.get(signature)
    if fixed is None:
        _refuse_unknown(signature, _RecordPlace(shard, offset))
    if len(head) < fixed.size:
        return fixed.size
    numbers = fixed.unpack_from(head)
    if signature == LOCAL:
        return fixed.size + numbers[9] + numbers[10]
    if signature == CENTRAL:
        return fixed.size + numbers[10] + numbers[11] + numbers[12]
    if signature == END:
        return fixed.size + numbers[7]
    if signature == END64:
        if 12 + numbers[1] < fixed.size:
            _RecordPlace(shard, offset).fail(f"the zip64 end states too small a size, {numbers[1]}: damaged here")
        return 12 + numbers[1]
    return fixed.size


def _refuse_unknown(signature: bytes, place: _RecordPlace) -> NoReturn:
    if signature in (_DESCRIPTOR, b"PK00"):
        place.refuse("this zip is one of several volumes, or it has a data descriptor that no local header announces")
    if signature == b"PK\x06\x08":
        place.refuse("the directory of this zip is encrypted; write it again without")
    place.fail(f"no record of a zip begins with {signature!r}: damaged here")


def parse_local(raw: bytes, shard: str, offset: int) -> ZipEntry:
    """Parse a local header, which begins at `offset`."""
    place = _RecordPlace(shard, offset)
    _, _, flags, method, _, _, crc, packed, size, name_bytes, _ = _LOCAL.unpack_from(raw)
    name = raw[_LOCAL.size : _LOCAL.size + name_bytes]
    extra = _extra(raw[_LOCAL.size + name_bytes :], place)
    size, packed = _wide(extra.get(_ZIP64, b""), (size, packed), place)
    return _entry(name, extra, flags, method, place, crc, packed, size, offset)


def parse_central(raw: bytes, shard: str, offset: int) -> ZipEntry:
    """Parse a central entry, which begins at `offset`."""
    place = _RecordPlace(shard, offset)
    _, made_by, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes, _, disk, _, outer, local = (
        _CENTRAL.unpack_from(raw)
    )
    name_end = _CENTRAL.size + name_bytes
    extra = _extra(raw[name_end : name_end + extra_bytes], place)
    size, packed, local = _wide(extra.get(_ZIP64, b""), (size, packed, local), place)
    if disk not in (0, _FULL_16):
        place.refuse("this zip goes on in other volumes; join them first")
    is_link = made_by >> 8 == _UNIX and stat.S_ISLNK(outer >> 16)
    name = raw[_CENTRAL.size : name_end]
    return _entry(name, extra, flags, method, place, crc, packed, size, local, is_link=is_link)


def _entry(
    raw_name: bytes,
    extra: dict[int, bytes],
    flags: int,
    method: int,
    place: _RecordPlace,
    crc: int,
    packed: int,
    size: int,
    offset: int,
    *,
    is_link: bool = False,
) -> ZipEntry:
    """Return the entry of a member. Refuse an encrypted member, and a member that is neither stored nor deflated."""
    name = _name(raw_name, extra.get(_UNICODE_PATH, b""), utf8=bool(flags & _UTF8))
    if not name or "\0" in name:
        place.fail(f"a member's name is empty or has a NUL in it: {name[:80]!r}")
    if flags & _ENCRYPTED:
        place.refuse(f"member {name!r} is encrypted; write the archive again without")
    if flags & _PATCH or method not in (STORED, DEFLATED):
        how = "a patch" if flags & _PATCH else _METHODS.get(method, f"compressed by method {method}")
        place.refuse(f"member {name!r} is {how}; in a zip, stored and deflated members are read")
    return ZipEntry(name, raw_name, offset, method, crc, packed, size, bool(flags & _HAS_DESCRIPTOR), is_link)


def _name(raw: bytes, unicode_path: bytes, *, utf8: bool) -> str:
    """Decode the name `raw`: as UTF-8 if the flag `utf8` is set, otherwise as cp437, as the format demands.

    If the flag is not set, the extra field `unicode_path` may hold the name in UTF-8, and the checksum of `raw`. The
    extra field is ignored if this checksum is wrong.
    """
    if utf8:
        return raw.decode("utf-8", "surrogateescape")
    if len(unicode_path) > 5 and int.from_bytes(unicode_path[1:5], "little") == zlib.crc32(raw):
        return unicode_path[5:].decode("utf-8", "surrogateescape")
    return raw.decode("cp437")


def _extra(raw: bytes, place: _RecordPlace) -> dict[int, bytes]:
    """Return the extra fields by number. Bytes at the end that are too few for a field are padding."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(raw):
        number, length = struct.unpack_from("<2H", raw, at)
        if at + 4 + length > len(raw):
            if number == _ZIP64:
                place.fail("a zip64 field is cut off")
            break
        found.setdefault(number, raw[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def _wide(field: bytes, numbers: tuple[int, ...], place: _RecordPlace) -> tuple[int, ...]:
    """Return `numbers`, after replacing the numbers that did not fit in 32 bits by those in the zip64 field.

    The zip64 field holds only the numbers that did not fit, in the order of `numbers`.
    """
    wide: list[int] = []
    at = 0
    for number in numbers:
        if number != _FULL_32 or not field:
            wide.append(number)
            continue
        if at + 8 > len(field):
            place.fail("a zip64 field is too short for what it must say")
        wide.append(int.from_bytes(field[at : at + 8], "little"))
        at += 8
    return tuple(wide)


def parse_end(raw: bytes, shard: str, offset: int) -> DirectoryEnd:
    """Parse the end record, which begins at `offset`."""
    _, disk, first_disk, here, entries, size, where, _ = _END.unpack_from(raw)
    if (disk, first_disk) not in ((0, 0), (_FULL_16, _FULL_16)) or here != entries:
        _RecordPlace(shard, offset).refuse("this zip is the last of several volumes; join them first")
    return DirectoryEnd(entries, size, where)


def parse_end64(raw: bytes, shard: str, offset: int) -> DirectoryEnd:
    """Parse the zip64 end record, which begins at `offset`."""
    _, _, _, _, disk, first_disk, here, entries, size, where = _END64.unpack_from(raw)
    if disk or first_disk or here != entries:
        _RecordPlace(shard, offset).refuse("this zip is the last of several volumes; join them first")
    return DirectoryEnd(entries, size, where)


def parse_locator(raw: bytes) -> int:
    """Return the offset of the zip64 end record."""
    return _LOCATOR.unpack_from(raw)[2]


def find_end(tail: bytes) -> int:
    """Return the offset of the end record in `tail`, the last bytes of a zip; -1 if there is none.

    An end record counts only if its comment ends at the last byte.
    """
    at = tail.rfind(END)
    while at >= 0:
        if len(tail) - at >= _END.size and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail):
            return at
        at = tail.rfind(END, 0, at + 3)
    return -1
