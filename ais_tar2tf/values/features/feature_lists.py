"""Converts values to features of a tf.train.Example, and encodes the lists of the features.

A feature is a flat list of one kind: bytes, floats or integers. Some values become several features:

* A ragged value becomes `<name>/ragged_flat_values` and, for each level from the outermost inwards,
  `<name>/ragged_row_lengths_<i>`. TFDS uses the same names.
* A sparse value becomes `<name>/values`, `<name>/shape` and, for each dimension, `<name>/indices_<dimension>`.

This module must not know schemas.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from ais_tar2tf.errors import FeatureOverflow, NoFeature
from ais_tar2tf.values.features.varint import packed, varint

__all__ = [
    "BYTES",
    "FLAT_VALUES",
    "FLOATS",
    "INDICES",
    "INTEGERS",
    "ROW_LENGTHS",
    "SHAPE",
    "TEXT_TYPES",
    "VALUES",
    "as_bytes",
    "as_float32s",
    "as_numpy",
    "features_of",
    "float_bytes",
    "integer_bytes",
    "list_bytes",
]

NO_KIND, BYTES, FLOATS, INTEGERS = 0, 1, 2, 3
FLAT_VALUES, ROW_LENGTHS = "{}/ragged_flat_values", "{}/ragged_row_lengths_{}"
VALUES, INDICES, SHAPE = "{}/values", "{}/indices_{}", "{}/shape"

_INT64 = range(-(2**63), 2**63)
TEXT_TYPES = (bytes, bytearray, memoryview, str)
_INTEGER_TYPES = (bool, int, np.integer, np.bool_)
_NUMBER_TYPES = (*_INTEGER_TYPES, float, np.floating)
# The kinds by NumPy's letters for types. ml_dtypes' bfloat16 has the letter "V", as has NumPy's own void type, which
# `_array_list` refuses.
_KINDS = {"f": FLOATS, "V": FLOATS, "b": INTEGERS, "i": INTEGERS, "u": INTEGERS, "S": BYTES, "U": BYTES}


def features_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, content) for each feature that a value becomes. None becomes no feature.

    A content is a scalar, a flat list or an array. `list_bytes` encodes it.
    """
    if value is None:
        return
    if _is_plain_array(value):
        yield name, value
    elif hasattr(value, "nested_row_lengths"):  # a tf.RaggedTensor
        lengths = [np.asarray(each) for each in value.nested_row_lengths()]
        yield from _ragged(name, _flat(value.flat_values), lengths)
    elif hasattr(value, "dense_shape"):  # a tf.SparseTensor
        yield from _sparse(name, np.asarray(value.indices), _flat(value.values), np.asarray(value.dense_shape))
    else:
        plain = _plain(value)
        nested = isinstance(plain, list | tuple) and any(isinstance(each, list | tuple) for each in plain)
        yield from _nested(name, plain) if nested else [(name, plain)]


def _flat(values: Any) -> Any:
    """Return the values of a tensor in row-major order: numbers as an array, texts as a list."""
    return _plain(np.asarray(values).reshape(-1))


def _is_plain_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O"


def _ragged(name: str, flat: Any, lengths: list[Any]) -> Iterator[tuple[str, Any]]:
    yield FLAT_VALUES.format(name), flat
    for depth, each in enumerate(lengths):
        yield ROW_LENGTHS.format(name, depth), np.asarray(each, np.int64)


def _sparse(name: str, indices: Any, values: Any, shape: Any) -> Iterator[tuple[str, Any]]:
    yield VALUES.format(name), values
    for dimension in range(len(shape)):
        yield INDICES.format(name, dimension), indices[:, dimension]
    yield SHAPE.format(name), np.asarray(shape, np.int64)


def _nested(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the features of nested lists.

    If all lists of each level have the same length, the value becomes one flat list. Otherwise it is ragged.
    """
    level, lengths = list(value), list[list[int]]()
    while any(isinstance(each, list | tuple) for each in level):
        if not all(isinstance(each, list | tuple) for each in level):
            raise NoFeature(f"feature {name!r} mixes lists with other values")
        lengths.append([len(each) for each in level])
        level = [_plain(item) for each in level for item in each]
    if all(len(set(each)) == 1 for each in lengths):
        yield name, level
    else:
        yield from _ragged(name, level, lengths)


def _plain(value: Any) -> Any:
    """Convert a tensor to an array, an enum to its value, and an array of Python objects to a list."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    value = as_numpy(value)
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value


def as_numpy(value: Any) -> Any:
    """Return the NumPy value of a tensor; return any other value unchanged."""
    return value.numpy() if hasattr(value, "numpy") else value


def list_bytes(name: str, value: Any) -> tuple[int, bytes]:
    """Return the kind and the encoded list of a feature, from the content that `features_of` yields."""
    if isinstance(value, np.ndarray | np.generic):
        return _array_list(name, np.asarray(value).reshape(-1))
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    values = [_plain(each) for each in values]
    if not values:
        return NO_KIND, b""  # an empty list of any kind has no bytes
    if all(isinstance(each, TEXT_TYPES) for each in values):
        return BYTES, _bytes_list([as_bytes(name, each) for each in values])
    if all(isinstance(each, _INTEGER_TYPES) for each in values):
        return INTEGERS, _packed_run(packed([_as_int(name, each) for each in values]))
    if all(isinstance(each, _NUMBER_TYPES) for each in values):  # integers among floats become floats
        return FLOATS, _packed_run(as_float32s(name, _as_doubles(name, values)).tobytes())
    if all(isinstance(each, np.ndarray) for each in values) and len({(e.shape, e.dtype) for e in values}) == 1:
        return _array_list(name, np.concatenate([each.reshape(-1) for each in values]))
    unsupported = next((each for each in values if not isinstance(each, (*TEXT_TYPES, *_NUMBER_TYPES))), None)
    if unsupported is None:
        raise NoFeature(f"feature {name!r} mixes text with numbers")
    raise NoFeature(f"feature {name!r}: {type(unsupported).__name__} is not bytes, text, a number, or a list of them")


def _array_list(name: str, flat: Any) -> tuple[int, bytes]:
    kind = _KINDS.get(flat.dtype.kind)
    if kind is None or flat.dtype.type is np.void:
        raise NoFeature(f"feature {name!r}: {flat.dtype} has no list of its own; a Schema can store it as raw bytes")
    if kind == BYTES:
        return BYTES, _bytes_list([as_bytes(name, each) for each in flat.tolist()])
    if kind == FLOATS:
        return FLOATS, _packed_run(as_float32s(name, flat).tobytes())
    if flat.dtype == np.uint64 and flat.size and int(flat.max()) not in _INT64:
        raise _overflow(name, int(flat.max()))
    return INTEGERS, _packed_run(packed(flat))


def _bytes_list(values: list[bytes]) -> bytes:
    """Return the encoding of a BytesList: for each value the tag 0x0a, the length and the bytes."""
    return b"".join([piece for value in values for piece in (b"\x0a", varint(len(value)), value)])


def _packed_run(payload: bytes) -> bytes:
    """Return the encoding of a FloatList or an Int64List: the tag 0x0a, the length and the packed numbers."""
    return b"".join((b"\x0a", varint(len(payload)), payload)) if payload else b""


def as_bytes(name: str, value: Any) -> bytes:
    """Return a text as UTF-8, and any other value of `TEXT_TYPES` as bytes. Errors name the feature `name`."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise NoFeature(f"feature {name!r}: half a surrogate pair at {error.start} has no bytes") from None
    return bytes(value)


def _as_int(name: str, value: Any) -> int:
    number = int(value)
    if number not in _INT64:
        raise _overflow(name, number)
    return number


def _overflow(name: str, number: int) -> FeatureOverflow:
    return FeatureOverflow(f"feature {name!r}: {number} does not fit into an int64; a Schema can store it raw")


def as_float32s(name: str, array: Any) -> Any:
    """Return an array as little-endian float32. Raise FeatureOverflow if a finite number would become infinite."""
    with np.errstate(over="ignore"):
        narrow = array.astype("<f4", copy=False)
    if array.dtype.itemsize > narrow.dtype.itemsize:
        lost = np.isinf(narrow) & np.isfinite(array)
        if lost.any():
            raise _overflows_float(name, array[lost].flat[0])
    return narrow


def _as_doubles(name: str, values: list[Any]) -> Any:
    """Return numbers as an array of float64."""
    try:
        return np.asarray(values, np.float64)
    except OverflowError:  # an integer that is too large for a float64
        raise _overflows_float(name, max(values, key=abs)) from None


def _overflows_float(name: str, number: Any) -> FeatureOverflow:
    return FeatureOverflow(
        f"feature {name!r}: {number} does not fit into a float32; a Schema can store it as raw bytes"
    )


def integer_bytes(name: str, value: int) -> bytes:
    """Return the encoding of one int64."""
    return varint(_as_int(name, value) & 0xFFFFFFFFFFFFFFFF)


def float_bytes(name: str, value: float) -> bytes:
    """Return the encoding of one float32."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        raise _overflows_float(name, value) from None
