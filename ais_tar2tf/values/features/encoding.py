"""The encoder of tf.train.Example, which makes a serialized Example of a dict of values.

`features/__init__.py` describes the wire format: an *entry* holds the name of a feature and a list of values, and the
*kind* of the list is bytes, floats or integers. The *head* of an entry is all its bytes before the first value. The
head of an entry with one value depends only on the name, the kind and the length of the value, so it is cached. This
module must not do I/O or import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ais_tar2tf.errors import NoFeature
from ais_tar2tf.values.features.feature_lists import (
    BYTES,
    FLOATS,
    INTEGERS,
    as_bytes,
    features_of,
    float_bytes,
    integer_bytes,
    list_bytes,
)
from ais_tar2tf.values.features.varint import varint

__all__ = ["bytes_head", "encode", "example_head"]

_MAX_CACHED = 16_384  # the most heads in the cache: usually about 2 MB of memory in all, at most 16 MB
_LONGEST_HEAD = 1_024  # bytes; longer heads are not cached
_ONE_BYTE_VARINTS = [bytes((number,)) for number in range(128)]
_heads: dict[tuple[str, int, int], bytes] = {}


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode a dict of values as a tf.train.Example.

    Args:
        record: The values by feature name: bytes, text, numbers, bools, enums, or lists and arrays of these types.
            Text is written as UTF-8, and floats as float32. A feature whose value is None is left out. Nested lists
            and arrays are written flat, in row-major order. Nested lists of different lengths, ragged tensors and
            sparse tensors become several features.

    Returns:
        The serialized Example.

    Raises:
        NoFeature: A tf.train.Example cannot hold a name or a value.
        FeatureOverflow: A number does not fit into int64 or float32.

    >>> encode({"label": 3}).hex()
    '0a100a0e0a056c6162656c12051a030a0103'
    """
    pieces: list[bytes] = [b""]
    size = 0
    for name, value in record.items():
        value_type = type(value)
        if value_type is bytes:
            kind, payload = BYTES, value
        elif value_type is int:
            kind, payload = INTEGERS, _ONE_BYTE_VARINTS[value] if 0 <= value < 128 else integer_bytes(name, value)
        elif value_type is str:
            kind, payload = BYTES, as_bytes(name, value)
        elif value_type is float:
            kind, payload = FLOATS, float_bytes(name, value)
        else:
            for feature, content in features_of(name, value):
                kind, payload = list_bytes(feature, content)
                head = _head_of_list(_name_bytes(feature), kind, len(payload))
                pieces += (head, payload)
                size += len(head) + len(payload)
            continue
        length = len(payload)
        head = _heads.get((name, kind, length)) or _cached_head(name, kind, length)
        pieces += (head, payload)
        size += len(head) + length
    pieces[0] = example_head(size)
    return b"".join(pieces)


def example_head(size: int) -> bytes:
    """Return the bytes with which an Example begins, before its entries. The entries have `size` bytes together."""
    return b"\x0a" + varint(size)


def bytes_head(name: bytes, size: int) -> bytes:
    """Return the head of an entry of kind bytes with one value of `size` bytes. The caller has encoded `name`."""
    return _head_of_value(name, BYTES, size)


def _cached_head(name: str, kind: int, length: int) -> bytes:
    """Return and cache the head of an entry with one bytes value, or one run of packed numbers, of `length` bytes."""
    head = _head_of_value(_name_bytes(name), kind, length)
    if len(head) > _LONGEST_HEAD:
        return head
    if len(_heads) >= _MAX_CACHED:
        _heads.clear()
    _heads[name, kind, length] = head
    return head


def _name_bytes(name: str) -> bytes:
    try:
        return name.encode()
    except (UnicodeEncodeError, AttributeError):
        raise NoFeature(f"feature {name!r}: a name must be text that can be encoded as UTF-8") from None


def _head_of_value(name: bytes, kind: int, length: int) -> bytes:
    """Return the head of an entry with one bytes value, or one run of packed numbers, of `length` bytes."""
    value_head = b"\x0a" + varint(length)
    return _head_of_list(name, kind, len(value_head) + length) + value_head


def _head_of_list(name: bytes, kind: int, length: int) -> bytes:
    """Return the bytes of an entry before its list, which has `length` bytes.

    Kind 0 means that the list is empty and that its kind is unknown. The entry then has an empty Feature, without a
    list.
    """
    feature = bytes((kind << 3 | 2,)) + varint(length) if kind else b""
    head = b"".join((b"\x0a", varint(len(name)), name, b"\x12", varint(len(feature) + length), feature))
    return b"\x0a" + varint(len(head) + length) + head
