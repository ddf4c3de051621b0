"""The parser of one tar header of 512 bytes, and of the records in a PAX header. No I/O.

    0    100  name          124  12  size       156    1  type        265  32  user name
    100  8    mode          136  12  mtime      157  100  link name   297  32  group name
    108  8    uid           148   8  checksum   257    6  magic       329  16  device
    116  8    gid                               263    2  version     345 155  prefix (ustar)

Numbers are octal text, or base-256 when the first byte has its high bit set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = [
    "BLOCK",
    "SPARSE_MAP",
    "ZERO_BLOCK",
    "Header",
    "Kind",
    "decode_name",
    "is_time_only_pax",
    "parse_header",
    "parse_number",
    "parse_pax",
]

BLOCK = 512
ZERO_BLOCK = bytes(BLOCK)


class Kind(Enum):
    """The meaning of the bytes after a header."""

    FILE = "file"
    V7_FILE = "v7 file"  # or a directory, if its full name (PAX, GNU) ends with a slash
    IGNORED = "ignored"  # directories, links, devices: they hold no field
    PAX = "pax"
    GLOBAL_PAX = "global pax"
    LONG_NAME = "long name"
    LONG_LINK = "long link"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Header:
    """The parts of a tar header that matter for reading the member."""

    kind: Kind
    name: str
    size: int  # bytes that follow; 0 for types without a body, whatever the header states


_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.V7_FILE,
    b"7": Kind.FILE,  # a contiguous file, today an ordinary one
    b"x": Kind.PAX,
    b"X": Kind.PAX,  # Solaris
    b"g": Kind.GLOBAL_PAX,
    b"L": Kind.LONG_NAME,
    b"K": Kind.LONG_LINK,
    b"S": Kind.SPARSE,
    b"D": Kind.IGNORED,  # GNU incremental: the listing of a directory
    b"V": Kind.IGNORED,  # GNU volume label
}
_WITHOUT_BODY = frozenset(b"123456")  # links, devices, directories, fifos

_NUMBERS = {"mode": (100, 108), "uid": (108, 116), "gid": (116, 124), "size": (124, 136), "mtime": (136, 148)}


def decode_name(raw: bytes) -> str:
    """Decode a name; bytes that are not UTF-8 become surrogates, so that encoding restores them."""
    return raw.decode("utf-8", "surrogateescape")


def _c_string(raw: bytes) -> bytes:
    return raw.partition(b"\0")[0]


def parse_number(raw: bytes, what: str, shard: str, offset: int) -> int:
    """Parse a number of a header, octal or base-256; the other arguments are for the error."""
    if raw[0] & 0x80:
        value = int.from_bytes(raw, "big", signed=False)
        if raw[0] & 0x40:  # negative, in two's complement over the whole field
            value -= 1 << (8 * len(raw))
        else:
            value &= ~(0x80 << (8 * (len(raw) - 1)))
        if not -(1 << 63) <= value < 1 << 63:
            raise ArchiveError(f"the {what} in a tar header has over 64 bits: {value:,}", shard=shard, offset=offset)
        return value
    text = _c_string(raw.strip(b" \0"))
    if not text:
        return 0
    if text.strip(b"01234567"):
        raise ArchiveError(f"the {what} in a tar header is no number: {raw!r}", shard=shard, offset=offset)
    return int(text, 8)


def _check_sum(raw: bytes, shard: str, offset: int) -> None:
    stated = parse_number(raw[148:156], "checksum", shard, offset)
    rest = raw[:148] + b" " * 8 + raw[156:]
    unsigned = sum(rest)
    # Some old tars added the bytes as signed numbers.
    if stated != unsigned and stated != unsigned - 256 * sum(byte > 127 for byte in rest):
        raise ArchiveError(
            f"the checksum of a tar header is wrong (said {stated}, is {unsigned}): damaged, or not a tar",
            shard=shard,
            offset=offset,
        )


def _prefix(raw: bytes) -> bytes:
    """Return the prefix of the name, for the flavours of tar that have one."""
    if raw[257:263] == b"ustar\0":
        is_star = raw[508:512] == b"tar\0"  # star stores two times after a shorter prefix
        return _c_string(raw[345:476] if is_star else raw[345:500])
    if raw[257:265] == b"ustar  \0":
        # Old GNU stores the access and the change time here. Some writers store a prefix all the same; a prefix is
        # not a number.
        prefix = _c_string(raw[345:500])
        has_times = _is_time(raw[345:357]) and _is_time(raw[357:369])
        return b"" if has_times or not prefix.isascii() else prefix
    return b""


def _is_time(field: bytes) -> bool:
    """Return whether an optional field holds a number, or is unused."""
    try:
        if field[0]:
            parse_number(field, "time", "", 0)
    except ArchiveError:
        return False
    return True


def parse_header(raw: bytes, shard: str, offset: int) -> Header:
    """Parse and check the header in `raw` (512 bytes, not all zero); `shard` and `offset` are for the errors."""
    _check_sum(raw, shard, offset)
    numbers = {what: parse_number(raw[a:b], what, shard, offset) for what, (a, b) in _NUMBERS.items()}
    size = numbers["size"]
    if size < 0:
        raise ArchiveError(f"a tar header says a negative size: {size}", shard=shard, offset=offset)
    name, prefix = _c_string(raw[:100]), _prefix(raw)
    if prefix:
        name = prefix + b"/" + name
    typeflag = raw[156:157]
    if typeflag == b"M":
        raise UnsupportedArchive(
            f"member {decode_name(name)!r} goes on from another volume; join the volumes first",
            shard=shard,
            offset=offset,
        )
    if raw[156] in _WITHOUT_BODY:
        return Header(Kind.IGNORED, decode_name(name), 0)
    # POSIX: an unknown type is read as a file.
    return Header(_KINDS.get(typeflag, Kind.FILE), decode_name(name), size)


_PAX_INTEGERS = frozenset({b"uid", b"gid", b"size"})
_PAX_TIMES = frozenset({b"mtime", b"atime", b"ctime"})
_PAX_NAMES = frozenset({b"path", b"linkpath", b"uname", b"gname"})
_PAX_DIGITS = 100  # of a number: more than any number needs, and few enough for int()
SPARSE_MAP = b"GNU.sparse.map"
_SPARSE_PAIR = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")  # in turn, once for each part: format 0.0
_TIME = re.compile(rb"(?=-?\.?\d)-?\d*(\.\d*)?(e[-+]?\d+)?")  # Python writes tiny and huge times with an exponent
_TIME_ONLY = re.compile(rb"(\d{1,3}) [acm]time=-?\d+(?:\.\d+)?\n")


def is_time_only_pax(block: memoryview, begin: int, end: int) -> bool:
    """Return whether a PAX header holds one time and nothing else, as Python's tarfile writes before every member."""
    found = _TIME_ONLY.fullmatch(block, begin, end)
    return found is not None and int(found[1]) == end - begin


def parse_pax(body: bytes, shard: str, offset: int) -> dict[bytes, bytes]:
    """Parse the records of a PAX header: `<length> <key>=<value>` and a newline, with the length of the whole record.

    The map of a sparse member in format 0.0 is returned as in format 0.1, under `SPARSE_MAP`.
    """
    found: dict[bytes, bytes] = {}
    sparse_map: list[bytes] = []
    at = 0
    while at < len(body):
        number, space, _ = body[at : at + 20].partition(b" ")
        length = int(number) if space and number.isdigit() else 0
        end = at + length
        key, equals, value = body[at + len(number) + 1 : max(at, end - 1)].partition(b"=")
        if length <= len(number) + 2 or end > len(body) or body[end - 1] != 0x0A or not equals or not key:
            raise ArchiveError(f"a PAX header is malformed at {body[at : at + 40]!r}", shard=shard, offset=offset)
        _check_pax(key, value, shard, offset)
        if key in _SPARSE_PAIR:  # every value counts, and not only the last
            if key != _SPARSE_PAIR[len(sparse_map) % 2]:
                raise ArchiveError("a sparse map has an offset without a length", shard=shard, offset=offset)
            sparse_map.append(value)
        found[key] = value
        at = end
    if sparse_map:
        found[SPARSE_MAP] = b",".join(sparse_map)
    return found


def _check_pax(key: bytes, value: bytes, shard: str, offset: int) -> None:
    bad = (
        b"\0" in (value if key in _PAX_NAMES else key)
        or (key in _PAX_INTEGERS and value and (not value.isdigit() or len(value) > _PAX_DIGITS))
        or (key in _PAX_TIMES and value and not _TIME.fullmatch(value))
    )
    if bad:
        raise ArchiveError(f"a PAX header says {key!r} is {value[:40]!r}", shard=shard, offset=offset)
