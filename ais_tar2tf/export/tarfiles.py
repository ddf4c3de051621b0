"""Records → tar members: USTAR, with a PAX header where a name or a size does not fit. The same bytes every time."""

from __future__ import annotations

import functools

from ais_tar2tf.errors import ExportError
from ais_tar2tf.records import NAMES, Record

__all__ = ["END", "member", "record_members"]

_BLOCK = 512
END = bytes(2 * _BLOCK)
"""Two zero blocks: the archive is whole."""

_MOST_NAME, _MOST_PREFIX = 100, 155
_MOST_SIZE = 8**11 - 1


def record_members(record: Record) -> bytes:
    """A record as the members `key.field`, in the record's order."""
    key = record["__key__"]
    parts: list[bytes] = []
    for field, body in record.items():
        if field in NAMES:
            continue
        if not isinstance(body, bytes | bytearray | memoryview):
            raise ExportError(
                f"record {key!r}, field {field!r}: a tar member is bytes, not {type(body).__name__}; encode it first"
            )
        parts += member(f"{key}.{field}", bytes(body))
    if not parts:
        raise ExportError(f"record {key!r} has no fields, so it can't be written to a tar")
    return b"".join(parts)


def member(name: str, body: bytes) -> list[bytes]:
    """One file: its headers, its bytes, and zeros up to a whole block."""
    encoded = name.encode("utf-8", "surrogateescape")
    if b"\0" in encoded or encoded.startswith(b"/") or b".." in encoded.split(b"/"):
        raise ExportError(f"{name!r} is no name for a member: it is absolute, leaves its folder, or holds a NUL")
    return [*_headers(encoded, len(body)), body, bytes(-len(body) % _BLOCK)]


def _headers(name: bytes, size: int) -> list[bytes]:
    placed = _placed(name)
    if placed is not None and size <= _MOST_SIZE and name.isascii():
        return [_header(*placed, size, b"0")]
    records = _pax(b"path", name) + (_pax(b"size", b"%d" % size) if size > _MOST_SIZE else b"")
    short = name[-_MOST_NAME:].decode("ascii", "replace").replace("\ufffd", "_").encode()
    return [
        _header(b"", b"././@PaxHeader", len(records), b"x"),
        records + bytes(-len(records) % _BLOCK),
        _header(b"", short.lstrip(b"/"), min(size, _MOST_SIZE), b"0"),
    ]


def _placed(name: bytes) -> tuple[bytes, bytes] | None:
    """(prefix, name) as USTAR splits a path at a slash; None when it does not fit."""
    if len(name) <= _MOST_NAME:
        return b"", name
    at = name.rfind(b"/", 0, _MOST_PREFIX + 1)
    fits = at > 0 and 0 < len(name) - at - 1 <= _MOST_NAME
    return (name[:at], name[at + 1 :]) if fits else None


def _pax(key: bytes, value: bytes) -> bytes:
    """`length key=value\\n`, where the length counts its own digits."""
    length = rest = len(key) + len(value) + 3
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


@functools.lru_cache(4096)
def _sums(size: int, kind: bytes) -> tuple[bytes, bytes, int]:
    """The header's bytes behind the name up to the checksum, those behind it up to the prefix, and their sum."""
    before = b"0000644\x000000000\x000000000\x00%011o\x00%011o\x00" % (size, 0)
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00"
    return before, after, sum(before) + sum(after) + 8 * ord(" ")


def _header(prefix: bytes, name: bytes, size: int, kind: bytes) -> bytes:
    before, after, total = _sums(size, kind)
    total += sum(name) + sum(prefix)
    return b"".join(
        (name.ljust(_MOST_NAME, b"\0"), before, b"%06o\x00 " % total, after, prefix.ljust(_MOST_PREFIX + 12, b"\0"))
    )
