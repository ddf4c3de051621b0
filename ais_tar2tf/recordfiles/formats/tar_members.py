"""Encodes records as tar members. This module must not write files.

The members have USTAR headers. A PAX header is added if a member's name is not ASCII, or if its name or size does not
fit in a USTAR header.

The same record always gives the same bytes, because every member has the owner 0, the time 0 and the mode 644.
"""

from __future__ import annotations

import functools

from ais_tar2tf.errors import ExportError
from ais_tar2tf.records import KEY_AND_SHARD, Record

__all__ = ["END", "member", "record_members"]

_BLOCK = 512
END = bytes(2 * _BLOCK)
"""The end mark of a tar: two zero blocks."""

_MOST_NAME, _MOST_PREFIX = 100, 155  # sizes in bytes of the fields `name` and `prefix` of a USTAR header
_MOST_SIZE = 8**11 - 1  # the largest size in bytes that a USTAR header can state, in eleven octal digits


def record_members(record: Record) -> tuple[bytes, ...]:
    """Return the parts of all members of a record, in one tuple and in the order of the record's fields.

    The name of a member is `KEY.FIELD`. `member` says which parts a member has.

    Raises:
        ExportError: A field is not bytes, the record has no fields, or `member` refuses the name of a member.
    """
    key = record["__key__"]
    parts: list[bytes] = []
    for field, value in record.items():
        if field in KEY_AND_SHARD:
            continue
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ExportError(
                f"record {key!r}, field {field!r}: a tar member is bytes, not {type(value).__name__}; encode it first"
            )
        parts += member(f"{key}.{field}", bytes(value))
    if not parts:
        raise ExportError(f"record {key!r} has no fields, so it can't be written to a tar")
    return tuple(parts)


def member(name: str, data: bytes) -> list[bytes]:
    """Return the parts of one member: its headers, its data, and zeros up to a multiple of 512 bytes.

    Raises:
        ExportError: The name is absolute, leaves its folder, or holds a NUL.
    """
    encoded = name.encode("utf-8", "surrogateescape")
    if b"\0" in encoded or encoded.startswith(b"/") or b".." in encoded.split(b"/"):
        raise ExportError(f"{name!r} is no name for a member: it is absolute, leaves its folder, or holds a NUL")
    return [*_headers(encoded, len(data)), data, bytes(-len(data) % _BLOCK)]


def _headers(name: bytes, size: int) -> list[bytes]:
    prefix_and_name = _split_name(name)
    if prefix_and_name is not None and size <= _MOST_SIZE and name.isascii():
        return [_header(*prefix_and_name, size, b"0")]
    pax = _pax(b"path", name) + (_pax(b"size", b"%d" % size) if size > _MOST_SIZE else b"")
    # Readers that do not know PAX use the name and the size in the USTAR header after the PAX header. So this header
    # has the end of the name, and the size or the largest size that fits.
    short_name = name[-_MOST_NAME:].decode("ascii", "replace").replace("\ufffd", "_").encode().lstrip(b"/")
    return [
        _header(b"", b"././@PaxHeader", len(pax), b"x"),
        pax + bytes(-len(pax) % _BLOCK),
        _header(b"", short_name, min(size, _MOST_SIZE), b"0"),
    ]


def _split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a member's name into the fields `prefix` and `name` of a USTAR header; return None if it does not fit.

    A name that is too long for the field `name` is split at a slash. Neither field contains that slash.
    """
    if len(name) <= _MOST_NAME:
        return b"", name
    slash = name.rfind(b"/", 0, _MOST_PREFIX + 1)
    fits = slash > 0 and 0 < len(name) - slash - 1 <= _MOST_NAME
    return (name[:slash], name[slash + 1 :]) if fits else None


def _pax(keyword: bytes, value: bytes) -> bytes:
    """Return one entry of a PAX header: the entry's length, a space, `keyword=value` and a newline.

    The length counts all bytes of the entry, including the digits of the length itself.
    """
    length = rest = len(keyword) + len(value) + 3
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, keyword, value)


@functools.lru_cache(4096)
def _constant_parts(size: int, kind: bytes) -> tuple[bytes, bytes, int]:
    """Return the two parts of a header that do not depend on the member's name, and a sum.

    The first part is the fields between the name and the checksum. The second part is the fields between the checksum
    and the prefix. The sum adds up all bytes of both parts, and eight spaces: USTAR computes the checksum of a header
    as if the checksum itself were eight spaces.
    """
    before = b"0000644\x000000000\x000000000\x00%011o\x00%011o\x00" % (size, 0)
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00"
    return before, after, sum(before) + sum(after) + 8 * ord(" ")


def _header(prefix: bytes, name: bytes, size: int, kind: bytes) -> bytes:
    before, after, checksum = _constant_parts(size, kind)
    checksum += sum(name) + sum(prefix)
    name, prefix = name.ljust(_MOST_NAME, b"\0"), prefix.ljust(_MOST_PREFIX + 12, b"\0")
    return b"".join((name, before, b"%06o\x00 " % checksum, after, prefix))
