"""Named values → a serialized tf.train.Example. What comes before a value is remembered by its name and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ais_tar2tf.errors import NoFeature
from ais_tar2tf.features._values import (
    BYTES,
    FLOATS,
    INTEGERS,
    as_bytes,
    body_of,
    float_bytes,
    integer_bytes,
    parts_of,
)
from ais_tar2tf.features._varint import varint

__all__ = ["bytes_head", "encode", "example_head"]

_REMEMBERED = 16_384  # names with lengths: some 2 MB, and 16 MB at most
_LONGEST_HEAD = 1_024  # bytes of one that is remembered
_SMALL = [bytes((number,)) for number in range(128)]
_heads: dict[tuple[str, int, int], bytes] = {}


def encode(record: Mapping[str, Any]) -> bytes:
    """A serialized tf.train.Example of named values: bytes, text, numbers, bools, enums, lists and arrays of them.

    Text is written as UTF-8, floats as float32. None leaves a feature out. Lists in lists and arrays are written
    flat, by rows; lists of different lengths, ragged and sparse tensors become several features.

    >>> encode({"label": 3}).hex()
    '0a100a0e0a056c6162656c12051a030a0103'
    """
    pieces: list[bytes] = [b""]
    size = 0
    for name, value in record.items():
        of = type(value)
        if of is bytes:
            kind, payload = BYTES, value
        elif of is int:
            kind, payload = INTEGERS, _SMALL[value] if 0 <= value < 128 else integer_bytes(name, value)
        elif of is str:
            kind, payload = BYTES, as_bytes(name, value)
        elif of is float:
            kind, payload = FLOATS, float_bytes(name, value)
        else:
            for part, each in parts_of(name, value):
                kind, payload = body_of(part, each)
                head = _head_of_list(_key(part), kind, len(payload))
                pieces += (head, payload)
                size += len(head) + len(payload)
            continue
        length = len(payload)
        head = _heads.get((name, kind, length)) or _remember(name, kind, length)
        pieces += (head, payload)
        size += len(head) + length
    pieces[0] = example_head(size)
    return b"".join(pieces)


def example_head(size: int) -> bytes:
    """What comes before entries of `size` bytes."""
    return b"\x0a" + varint(size)


def bytes_head(key: bytes, size: int) -> bytes:
    """Everything of an entry that comes before its only value, of `size` bytes; `key` is its name."""
    return _head_of_value(key, BYTES, size)


def _remember(name: str, kind: int, length: int) -> bytes:
    """What comes before a list's only value: it depends on the name, the kind and the length alone."""
    head = _head_of_value(_key(name), kind, length)
    if len(head) > _LONGEST_HEAD:
        return head
    if len(_heads) >= _REMEMBERED:
        _heads.clear()
    _heads[name, kind, length] = head
    return head


def _key(name: str) -> bytes:
    try:
        return name.encode()
    except (UnicodeEncodeError, AttributeError):
        raise NoFeature(f"feature {name!r}: a name is text that UTF-8 can write") from None


def _head_of_value(key: bytes, kind: int, length: int) -> bytes:
    inner = b"\x0a" + varint(length)
    return _head_of_list(key, kind, len(inner) + length) + inner


def _head_of_list(key: bytes, kind: int, length: int) -> bytes:
    """Everything of an entry that comes before the `length` bytes of its list."""
    feature = bytes((kind << 3 | 2,)) + varint(length) if kind else b""
    before = b"".join((b"\x0a", varint(len(key)), key, b"\x12", varint(len(feature) + length), feature))
    return b"\x0a" + varint(len(before) + length) + before
