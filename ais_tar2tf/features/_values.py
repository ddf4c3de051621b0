"""From a user's value to flat lists of one kind: what stands in the feature of its name, and in features beside it.

A ragged value becomes `<name>/ragged_flat_values` and, from the outermost inwards, `<name>/ragged_row_lengths_<i>`;
a sparse one `<name>/values`, `<name>/indices_<dimension>` and `<name>/shape`. TFDS names ragged ones so, too.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from ais_tar2tf.errors import FeatureOverflow, NoFeature
from ais_tar2tf.features._varint import packed, varint

__all__ = [
    "BYTES",
    "FLAT_VALUES",
    "FLOATS",
    "INDICES",
    "INTEGERS",
    "NO_KIND",
    "ROW_LENGTHS",
    "SHAPE",
    "TEXT",
    "VALUES",
    "as_bytes",
    "as_float32s",
    "body_of",
    "float_bytes",
    "integer_bytes",
    "parts_of",
]

NO_KIND, BYTES, FLOATS, INTEGERS = 0, 1, 2, 3
FLAT_VALUES, ROW_LENGTHS = "{}/ragged_flat_values", "{}/ragged_row_lengths_{}"
VALUES, INDICES, SHAPE = "{}/values", "{}/indices_{}", "{}/shape"

_INT64 = range(-(2**63), 2**63)
TEXT = (bytes, bytearray, memoryview, str)
_WHOLE = (bool, int, np.integer, np.bool_)
_KINDS = {"f": FLOATS, "V": FLOATS, "b": INTEGERS, "i": INTEGERS, "u": INTEGERS, "S": BYTES, "U": BYTES}


def parts_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The features that a value becomes, each a scalar, a flat list or an array; nothing for None."""
    if value is None:
        return
    if _is_plain_array(value):
        yield name, value
    elif hasattr(value, "nested_row_lengths"):  # a tf.RaggedTensor
        lengths = [np.asarray(each) for each in value.nested_row_lengths()]
        yield from _ragged(name, np.asarray(value.flat_values), lengths)
    elif hasattr(value, "dense_shape"):  # a tf.SparseTensor
        yield from _sparse(name, np.asarray(value.indices), np.asarray(value.values), np.asarray(value.dense_shape))
    else:
        plain = _plain(value)
        nested = isinstance(plain, list | tuple) and any(isinstance(each, list | tuple) for each in plain)
        yield from _nested(name, plain) if nested else [(name, plain)]


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
    """Lists in lists: one flat list when all of a depth are equally long, else ragged."""
    level, lengths = list(value), list[list[int]]()
    while any(isinstance(each, list | tuple) for each in level):
        if not all(isinstance(each, list | tuple) for each in level):
            raise NoFeature(f"feature {name!r} has lists beside values that are none")
        lengths.append([len(each) for each in level])
        level = [_plain(item) for each in level for item in each]
    if all(len(set(each)) == 1 for each in lengths):
        yield name, level
    else:
        yield from _ragged(name, level, lengths)


def _plain(value: Any) -> Any:
    """Tensors as numpy has them, enums as their value, numpy's own object lists as lists."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return value.tolist()
    return value


def body_of(name: str, value: Any) -> tuple[int, bytes]:
    """The kind of a scalar, a flat list or an array, and the bytes of its list."""
    if isinstance(value, np.ndarray | np.generic):
        return _array_body(name, np.asarray(value).reshape(-1))
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    values = [_plain(each) for each in values]
    if not values:
        return NO_KIND, b""  # a list of any kind, for whoever parses it
    if all(isinstance(each, TEXT) for each in values):
        return BYTES, _bytes_body([as_bytes(name, each) for each in values])
    if all(isinstance(each, _WHOLE) for each in values):
        return INTEGERS, _chunk(packed([_as_int(name, each) for each in values]))
    if all(isinstance(each, (*_WHOLE, float, np.floating)) for each in values):  # integers beside floats are floats
        return FLOATS, _chunk(as_float32s(name, _as_doubles(name, values)).tobytes())
    if all(isinstance(each, np.ndarray) for each in values) and len({(e.shape, e.dtype) for e in values}) == 1:
        return _array_body(name, np.concatenate([each.reshape(-1) for each in values]))
    odd = next((each for each in values if not isinstance(each, (*TEXT, *_WHOLE, float, np.floating))), None)
    if odd is None:
        raise NoFeature(f"feature {name!r} mixes text with numbers")
    raise NoFeature(f"feature {name!r}: {type(odd).__name__} is not bytes, text, a number, or a list of them")


def _array_body(name: str, flat: Any) -> tuple[int, bytes]:
    kind = _KINDS.get(flat.dtype.kind)
    if kind is None or flat.dtype.type is np.void:
        raise NoFeature(f"feature {name!r}: {flat.dtype} has no list of its own; a Schema can store it as raw bytes")
    if kind == BYTES:
        return BYTES, _bytes_body([as_bytes(name, each) for each in flat.tolist()])
    if kind == FLOATS:
        return FLOATS, _chunk(as_float32s(name, flat).tobytes())
    if flat.dtype == np.uint64 and flat.size and int(flat.max()) not in _INT64:
        raise _overflow(name, int(flat.max()))
    return INTEGERS, _chunk(packed(flat))


def _bytes_body(values: list[bytes]) -> bytes:
    return b"".join([piece for value in values for piece in (b"\x0a", varint(len(value)), value)])


def _chunk(payload: bytes) -> bytes:
    return b"".join((b"\x0a", varint(len(payload)), payload)) if payload else b""


def as_bytes(name: str, value: Any) -> bytes:
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
    """As float32, little-endian; what becomes infinite by that is refused, what becomes less exact is not."""
    with np.errstate(over="ignore"):
        narrow = array.astype("<f4", copy=False)
    if array.dtype.itemsize > narrow.dtype.itemsize:
        lost = np.isinf(narrow) & np.isfinite(array)
        if lost.any():
            raise _overflows_float(name, array[lost].flat[0])
    return narrow


def _as_doubles(name: str, values: list[Any]) -> Any:
    try:
        return np.asarray(values, np.float64)
    except OverflowError:  # an integer beside floats
        raise _overflows_float(name, max(values, key=abs)) from None


def _overflows_float(name: str, number: Any) -> FeatureOverflow:
    return FeatureOverflow(
        f"feature {name!r}: {number} does not fit into a float32; a Schema can store it as raw bytes"
    )


def integer_bytes(name: str, value: int) -> bytes:
    """One int64."""
    return varint(_as_int(name, value) & 0xFFFFFFFFFFFFFFFF)


def float_bytes(name: str, value: float) -> bytes:
    """One float32."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        raise _overflows_float(name, value) from None
