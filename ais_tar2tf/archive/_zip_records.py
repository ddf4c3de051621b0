"""The records of a zip file, one at a time: its local headers, its directory's entries, and its end.

Numbers are little-endian. A number that does not fit says 0xFFFF or 0xFFFFFFFF and stands in a zip64 field instead.
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
    "LONGEST_FIXED",
    "MOST_BEHIND",
    "STORED",
    "End",
    "Entry",
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
MOST_BEHIND = 24  # bytes of a sign, a checksum and two sizes
_LOCAL = struct.Struct("<4s5H3I2H")  # sign, version, flags, method, time, date, crc, packed, size, name, extra
_CENTRAL = struct.Struct(
    "<4s6H3I5H2I"
)  # … as above with two versions; name, extra, comment, disk, inner, outer, offset
_END = struct.Struct("<4s4H2IH")  # sign, disk, disk of directory, entries here, entries, size, offset, comment
_END64 = struct.Struct("<4sQ2H2I4Q")  # sign, bytes, versions, disks, entries here, entries, size, offset
_LOCATOR = struct.Struct("<4sIQI")  # sign, disk, offset of END64, disks
END_BYTES, END64_BYTES, LOCATOR_BYTES = _END.size, _END64.size, _LOCATOR.size
_FIXED = {LOCAL: _LOCAL, CENTRAL: _CENTRAL, END: _END, END64: _END64, LOCATOR: _LOCATOR}
LONGEST_FIXED = _END64.size  # with so many bytes, `record_bytes` is exact
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075  # extra fields
_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13  # flags: simple, strong, and names too
_SIZES_BEHIND, _PATCH, _UTF8 = 1 << 3, 1 << 5, 1 << 11
_METHODS = {1: "shrunk", 6: "imploded", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}
_UNIX = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One member, as its local header or the directory has it."""

    name: str
    raw_name: bytes
    offset: int  # of its local header
    method: int
    crc: int
    packed: int  # bytes in the archive
    size: int  # bytes when unpacked
    sizes_behind: bool  # a local header may leave the sizes to what stands behind the member
    is_link: bool = False  # only the directory says so

    @property
    def is_file(self) -> bool:
        return not self.is_link and not self.name.endswith("/")

    @property
    def descriptors(self) -> frozenset[bytes]:
        """What may stand behind a member that says its sizes there: with a sign or without, in 32 bits or in 64."""
        wide = struct.pack("<I2Q", self.crc, self.packed, self.size)
        found = {wide, _DESCRIPTOR + wide}
        if max(self.packed, self.size) <= _FULL_32:
            narrow = struct.pack("<3I", self.crc, self.packed, self.size)
            found |= {narrow, _DESCRIPTOR + narrow}
        return frozenset(found)

    @property
    def fingerprint(self) -> int:
        """Of all that a local header and the directory must agree on."""
        numbers = struct.pack("<QHIQQ", self.offset, self.method, self.crc, self.packed, self.size)
        return xxh3_128_intdigest(numbers + self.raw_name)


@dataclass(frozen=True, slots=True)
class End:
    """What the end of a zip says of its directory."""

    entries: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a record stands, for errors."""

    shard: str
    offset: int

    def fail(self, message: str) -> NoReturn:
        raise ArchiveError(message, shard=self.shard, offset=self.offset)

    def refuse(self, message: str) -> NoReturn:
        raise UnsupportedArchive(message, shard=self.shard, offset=self.offset)


def record_bytes(head: bytes, shard: str, offset: int) -> int:
    """How long the record that begins with `head` is, as far as `head` tells: more may be known with more of it."""
    sign = head[:4]
    if len(sign) < 4:
        return 4
    fixed = _FIXED.get(sign)
    if fixed is None:
        _unknown(sign, _Place(shard, offset))
    if len(head) < fixed.size:
        return fixed.size
    numbers = fixed.unpack_from(head)
    if sign == LOCAL:
        return fixed.size + numbers[9] + numbers[10]
    if sign == CENTRAL:
        return fixed.size + numbers[10] + numbers[11] + numbers[12]
    if sign == END:
        return fixed.size + numbers[7]
    return 12 + numbers[1] if sign == END64 else fixed.size


def _unknown(sign: bytes, place: _Place) -> NoReturn:
    if sign in (_DESCRIPTOR, b"PK00"):
        place.refuse("this zip is one of several volumes, or none of its headers says how long a member is")
    if sign == b"PK\x06\x08":
        place.refuse("the directory of this zip is encrypted; write it again without")
    place.fail(f"no record of a zip begins with {sign!r}: damaged here")


def parse_local(raw: bytes, shard: str, offset: int) -> Entry:
    place = _Place(shard, offset)
    _, _, flags, method, _, _, crc, packed, size, name_bytes, _ = _LOCAL.unpack_from(raw)
    name = raw[_LOCAL.size : _LOCAL.size + name_bytes]
    extra = _extra(raw[_LOCAL.size + name_bytes :], place)
    size, packed = _wide(extra.get(_ZIP64, b""), (size, packed), place)
    behind = bool(flags & _SIZES_BEHIND)
    return _entry(name, extra, flags, method, place, crc, packed, size, offset, behind=behind)


def parse_central(raw: bytes, shard: str, offset: int) -> Entry:
    place = _Place(shard, offset)
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
    behind = bool(flags & _SIZES_BEHIND)
    return _entry(name, extra, flags, method, place, crc, packed, size, local, behind=behind, is_link=is_link)


def _entry(
    raw_name: bytes,
    extra: dict[int, bytes],
    flags: int,
    method: int,
    place: _Place,
    crc: int,
    packed: int,
    size: int,
    offset: int,
    *,
    behind: bool,
    is_link: bool = False,
) -> Entry:
    name = _name(raw_name, extra.get(_UNICODE_PATH, b""), utf8=bool(flags & _UTF8))
    if not name or "\0" in name:
        place.fail(f"a member's name is empty or has a NUL in it: {name[:80]!r}")
    if flags & _ENCRYPTED:
        place.refuse(f"member {name!r} is encrypted; write the archive again without")
    if flags & _PATCH or method not in (STORED, DEFLATED):
        how = "a patch" if flags & _PATCH else _METHODS.get(method, f"compressed by method {method}")
        place.refuse(f"member {name!r} is {how}; in a zip, stored and deflated members are read")
    return Entry(name, raw_name, offset, method, crc, packed, size, behind, is_link)


def _name(raw: bytes, unicode_path: bytes, *, utf8: bool) -> str:
    """UTF-8 where a flag or a field says so, else the PC's first character set, as the format has it."""
    if utf8:
        return raw.decode("utf-8", "surrogateescape")
    if len(unicode_path) > 5 and int.from_bytes(unicode_path[1:5], "little") == zlib.crc32(raw):
        return unicode_path[5:].decode("utf-8", "surrogateescape")
    return raw.decode("cp437")


def _extra(raw: bytes, place: _Place) -> dict[int, bytes]:
    """The extra fields by number. What is too short to be one is padding."""
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


def _wide(field: bytes, numbers: tuple[int, ...], place: _Place) -> tuple[int, ...]:
    """The numbers, with those that did not fit taken from the zip64 field, in which only these stand."""
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


def parse_end(raw: bytes, shard: str, offset: int) -> End:
    _, disk, first_disk, here, entries, size, where, _ = _END.unpack_from(raw)
    if (disk, first_disk) not in ((0, 0), (_FULL_16, _FULL_16)) or here != entries:
        _Place(shard, offset).refuse("this zip is the last of several volumes; join them first")
    return End(entries, size, where)


def parse_end64(raw: bytes, shard: str, offset: int) -> End:
    _, _, _, _, disk, first_disk, here, entries, size, where = _END64.unpack_from(raw)
    if disk or first_disk or here != entries:
        _Place(shard, offset).refuse("this zip is the last of several volumes; join them first")
    return End(entries, size, where)


def parse_locator(raw: bytes) -> int:
    """Where the zip64 end stands."""
    return _LOCATOR.unpack_from(raw)[2]


def find_end(tail: bytes) -> int:
    """Where in the last bytes of a zip its end record begins: its comment reaches to the last byte. -1: nowhere."""
    at = tail.rfind(END)
    while at >= 0:
        if len(tail) - at >= _END.size and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail):
            return at
        at = tail.rfind(END, 0, at + 3)
    return -1
