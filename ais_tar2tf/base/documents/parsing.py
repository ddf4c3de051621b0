"""Parsers of JSON and msgpack documents that are not trusted: members of shards, and answers of servers.

The parsers bound the size and the nesting of a document, and the memory that its value takes. Whatever is wrong with
a document, the error is a `SchemaError`. This module must not do I/O.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.base.documents.sealed import is_crowded, is_deep
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import KIB, Limits

__all__ = ["json_value", "msgpack_value"]

_LIMIT = Limits().value_bytes
# The most levels of nested lists and objects. Recursive functions walk the values, with at least one call for each
# level, and Python allows 1,000 nested calls.
_DEPTH = 200
# A msgpack document of n bytes may have n / _DENSE lists and maps. An empty list has 1 byte in msgpack, but 64 bytes
# in memory.
_DENSE = 8
_SMALL = 64 * KIB  # bytes; a msgpack document up to this size may have any number of lists and maps


def json_value(data: bytes | str, limit: int = _LIMIT) -> Any:
    """Return the value of a JSON text of at most `limit` bytes. The size of a `str` is its size in UTF-8.

    >>> json_value(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    import json

    _check_size("JSON", data, limit)
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
        if is_crowded(text):
            raise SchemaError("no JSON that can be read here: it holds little but empty lists and objects")
        value: Any = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"no JSON that can be read here: {error}") from error
    if text.count("[") + text.count("{") > _DEPTH:
        _check_depth("JSON", value)
    return value


def msgpack_value(data: bytes, limit: int = _LIMIT) -> Any:
    """Return the value of a msgpack document of at most `limit` bytes.

    Values of extension types are returned as `msgpack.ExtType`.

    >>> msgpack_value(bytes([0x92, 1, 0xA1]) + b"a")
    [1, 'a']
    """
    import msgpack

    _check_size("msgpack", data, limit)
    try:
        hooks = _counted(msgpack, data) if len(data) > _SMALL else {}
        value: Any = msgpack.unpackb(data, raw=False, strict_map_key=False, **hooks)
    except SchemaError:
        raise
    except Exception as error:  # msgpack's errors have no common base class
        raise SchemaError(f"no msgpack that can be read here: {str(error) or type(error).__name__}") from error
    if len(data) > _DEPTH:
        _check_depth("msgpack", value)
    return value


def _counted(msgpack: Any, data: bytes) -> dict[str, Any]:
    """Return arguments for `unpackb` that make it refuse a document with too many lists and maps.

    First skip through the document without unpacking it. Skipping fails if a list has fewer items than its header
    states. `unpackb` would reserve memory for all stated items of such a list.
    """
    skipped = msgpack.Unpacker(max_buffer_size=len(data))
    skipped.feed(data)
    skipped.skip()
    left = len(data) // _DENSE

    def count(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SchemaError("no msgpack that can be read here: it holds little but empty lists and maps")
        return value

    return {"list_hook": count, "object_hook": count}


def _check_size(kind: str, data: bytes | str, limit: int) -> None:
    if isinstance(data, str) and not data.isascii():
        data = data.encode("utf-8", "surrogatepass")
    size = len(data)
    if size > limit:
        raise SchemaError(f"{kind} of {size:,} bytes passes the limit of {limit:,}, Limits.value_bytes")


def _check_depth(kind: str, value: Any) -> None:
    if is_deep(value, _DEPTH):
        raise SchemaError(f"no {kind} that can be read here: lists and objects are nested more than {_DEPTH} deep")
