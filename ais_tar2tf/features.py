"""tf.train.Example: the helpers of TensorFlow's guides, and an encoder of the wire format that needs no TensorFlow.

Example  = field 1: Features         BytesList = field 1, repeated bytes
Features = field 1, repeated: entry  FloatList = field 1, packed float32, little-endian
entry    = field 1: name             Int64List = field 1, packed varints
           field 2: Feature          Feature   = field 1 BytesList | 2 FloatList | 3 Int64List
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["bytes_feature", "encode", "float_feature", "float_feature_array", "int64_feature"]

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3


def bytes_feature(value: Any) -> Any:
    """A tf.train.Feature of one string: bytes, text, or a scalar string tensor."""
    import tensorflow as tf

    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[_as_bytes(_plain(value))]))


def float_feature(value: Any) -> Any:
    """A tf.train.Feature of one float."""
    return float_feature_array([_plain(value)])


def float_feature_array(value: Iterable[Any]) -> Any:
    """A tf.train.Feature of several floats."""
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=[float(each) for each in _plain(value)]))


def int64_feature(value: Any) -> Any:
    """A tf.train.Feature of one integer: bool, enum, int or unsigned."""
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=[_as_int(_plain(value))]))


def encode(values: Mapping[str, Any]) -> bytes:
    """A serialized tf.train.Example of named values: bytes, text, numbers, bools, enums, lists and arrays of them.

    >>> encode({"label": 3}).hex()
    '0a100a0e0a056c6162656c12051a030a0103'
    """
    entries = b"".join(
        _delimited(1, _delimited(1, name.encode()) + _delimited(2, _feature(name, value)))
        for name, value in values.items()
    )
    return _delimited(1, entries)


def _feature(name: str, value: Any) -> bytes:
    flat = _flat(_plain(value))
    kinds = {_kind(name, each) for each in flat}
    if len(kinds) > 1 and kinds != {_FLOATS, _INTEGERS}:
        raise TypeError(f"feature {name!r} mixes text with numbers")
    kind = min(kinds, default=_BYTES)  # integers beside floats are floats
    if kind == _BYTES:
        return _delimited(_BYTES, b"".join(_delimited(1, _as_bytes(each)) for each in flat))
    if kind == _FLOATS:
        return _delimited(_FLOATS, _delimited(1, np.asarray(flat, "<f4").tobytes()))
    return _delimited(
        _INTEGERS, _delimited(1, b"".join(_varint(_as_int(each) & 0xFFFFFFFFFFFFFFFF) for each in flat))
    )


def _plain(value: Any) -> Any:
    """Tensors as numpy has them."""
    return value.numpy() if hasattr(value, "numpy") else value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.reshape(-1).tolist()
    if isinstance(value, list | tuple):
        return [each for part in value for each in _flat(_plain(part))]
    return [value]


def _kind(name: str, value: Any) -> int:
    if isinstance(value, bytes | bytearray | memoryview | str):
        return _BYTES
    if isinstance(value, bool | int | np.integer | np.bool_ | enum.Enum):
        return _INTEGERS
    if isinstance(value, float | np.floating):
        return _FLOATS
    raise TypeError(f"feature {name!r}: {type(value).__name__} is not bytes, text, a number, or a list of them")


def _as_bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def _as_int(value: Any) -> int:
    number = int(value.value if isinstance(value, enum.Enum) else value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit into an int64")
    return number


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _delimited(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload
