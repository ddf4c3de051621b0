"""JSON and msgpack out of members' bytes: bounded in size, in nesting and in what they become. No I/O.

Whatever a member holds, the error is a `SchemaError`.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.documents import is_crowded, is_deep
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import KIB, Limits

__all__ = ["json_value", "msgpack_value"]

_LIMIT = Limits().value_bytes
_DEPTH = 200  # of nested lists and objects: what walks them calls itself, and Python allows a thousand such calls
_DENSE = 8  # bytes that a list or object takes at least, on average; an empty one takes 64 bytes of memory
_SMALL = 64 * KIB  # bytes of a value whose density does not matter


def json_value(data: bytes | str, limit: int = _LIMIT) -> Any:
    """Return what JSON says.

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
    """Return what msgpack says; types of somebody's own stay bytes with a number.

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
    except Exception as error:  # msgpack's own errors have no root
        raise SchemaError(f"no msgpack that can be read here: {str(error) or type(error).__name__}") from error
    if len(data) > _DEPTH:
        _check_depth("msgpack", value)
    return value


def _counted(msgpack: Any, data: bytes) -> dict[str, Any]:
    """Return hooks that count the lists and maps of a value.

    It is passed over first: while it is unpacked, memory is set aside for as many items as each list states.
    """
    passed = msgpack.Unpacker(max_buffer_size=len(data))
    passed.feed(data)
    passed.skip()
    left = len(data) // _DENSE

    def count(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SchemaError("no msgpack that can be read here: it holds little but empty lists and maps")
        return value

    return {"list_hook": count, "object_hook": count}


def _check_size(kind: str, data: bytes | str, limit: int) -> None:
    if len(data) > limit:
        raise SchemaError(f"{kind} of {len(data):,} bytes passes the limit of {limit:,}, Limits.value_bytes")


def _check_depth(kind: str, value: Any) -> None:
    if is_deep(value, _DEPTH):
        raise SchemaError(f"no {kind} that can be read here: lists and objects are nested more than {_DEPTH} deep")
