"""Conversion between the value of a field and the features of a tf.train.Example that store it.

The encoding and the shape of the field determine its features:

    list     `<name>`: a bytes, float or int64 list of the values, in row-major order
             ragged: `<name>/ragged_flat_values` and `<name>/ragged_row_lengths_<i>`
             sparse: `<name>/values`, `<name>/indices_<i>` and `<name>/shape`
    raw      `<name>`: the bytes of the array, little-endian, in row-major order
    others   `<name>`: the bytes of the file

Plain list and raw add `<name>/shape` if two or more sizes vary.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ais_tar2tf.errors import NoFeature, SchemaError
from ais_tar2tf.values.features import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES, as_numpy
from ais_tar2tf.values.schema.field import TEXT_DTYPES, Field, Shape
from ais_tar2tf.values.schema.misfits import misfit
from ais_tar2tf.values.schema.observation import observe
from ais_tar2tf.values.schema.written_numbers import written_number

__all__ = ["Sparse", "feature_names", "has_shape_feature", "ragged_rank", "restore", "store", "wire_dtype"]

_MAX_FLOAT = float(np.finfo(np.float32).max)
_INTEGERS = {
    name: range(int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}


class Sparse(NamedTuple):
    """A sparse value with the three parts of a tf.SparseTensor. It does not need TensorFlow."""

    indices: Any  # int64, one row for each value
    values: Any
    dense_shape: Any


def wire_dtype(field: Field) -> str:
    """Return the type of the list that stores a field: bytes, float32 or int64."""
    if field.encoding != "list" or field.dtype in TEXT_DTYPES:
        return "bytes"
    return "float32" if np.dtype(field.dtype).kind == "f" else "int64"


def ragged_rank(field: Field) -> int:
    """Return the number of levels of row lengths that a ragged field has."""
    return max((at for at, size in enumerate(field.shape) if size is None), default=1) if field.ragged else 0


def has_shape_feature(field: Field) -> bool:
    """Return whether each record stores the shape of the value: the number of values does not determine the shape."""
    return field.sparse or (not field.ragged and field.encoding in ("list", "raw") and field.shape.count(None) > 1)


def feature_names(field: Field) -> list[str]:
    """Return the names of the features that store a field. The first of them stores the values."""
    name = field.name
    if field.sparse:
        indices = [INDICES.format(name, dimension) for dimension in range(len(field.shape))]
        return [VALUES.format(name), *indices, SHAPE.format(name)]
    if field.ragged:
        return [FLAT_VALUES.format(name), *(ROW_LENGTHS.format(name, level) for level in range(ragged_rank(field)))]
    return [name, SHAPE.format(name)] if has_shape_feature(field) else [name]


def store(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    """Return (name, content) of each feature that stores a value.

    Raises:
        SchemaError: The value does not fit the field.
    """
    stored = _quickly_stored(field, value)
    if stored is not None:
        return iter(((field.name, stored),))
    if field.is_file:
        return iter(((field.name, _file_bytes(field, value)),))
    if field.sparse:
        return _store_sparse(field, value)
    if field.ragged:
        return _store_ragged(field, value)
    return _store_array(field, value)


def _quickly_stored(field: Field, value: Any) -> Any:
    """Return the content of the only feature of a value that needs no check except of its type and range.

    Return None for any other value. This shortcut is for speed; it covers most values.
    """
    value_type = type(value)
    if value_type is np.ndarray:
        return _quickly_stored_array(field, value)
    if field.shape or field.encoding != "list" or field.vocabulary is not None:
        return None
    if value_type is int:
        return value if field.dtype in _INTEGERS and value in _INTEGERS[field.dtype] else None
    if value_type is float:
        return value if field.dtype in ("float32", "float64") and -_MAX_FLOAT < value < _MAX_FLOAT else None
    if value_type in (str, bytes):
        return value if field.dtype in TEXT_DTYPES else written_number(field, value)
    return None


def _quickly_stored_array(field: Field, array: Any) -> Any:
    """Return the bytes of a raw array of one dimension, or the integer of a list of one; None for other arrays."""
    if len(field.shape) != 1 or array.ndim != 1 or field.ragged or field.sparse or field.vocabulary is not None:
        return None
    if array.dtype != field.dtype or field.shape[0] not in (None, len(array)):
        return None
    if field.encoding == "raw" and array.dtype.isnative and sys.byteorder == "little":
        return array.tobytes()
    return array.item() if field.encoding == "list" and len(array) == 1 and array.dtype.kind == "i" else None


def _file_bytes(field: Field, value: Any) -> bytes:
    value = as_numpy(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _checked_file(field, bytes(value))
    if field.encoding == "text":
        if isinstance(value, str):
            return _checked_file(field, value.encode("utf-8", "surrogateescape"))
        if isinstance(value, int | float | np.number) and field.dtype != "string":
            return _checked_file(field, repr(np.asarray(value).item()).encode())
    if field.encoding == "json":
        try:
            return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()
        except (TypeError, ValueError) as error:
            raise SchemaError(f"field {field.name!r} is not JSON: {error}") from error
    raise misfit(field, value)


def _checked_file(field: Field, data: bytes) -> bytes:
    """Check that an image, a `.npy` file or a text has the kind, shape and type of its field, and return it."""
    if field.encoding not in ("image", "npy", "text"):
        return data
    observed = observe(field.name, data)
    assert observed is not None
    if field.encoding == "text":
        if field.dtype != "string" and observed.dtype not in (field.dtype, "int64"):
            raise misfit(field, data)
        if field.vocabulary is not None and data.decode("utf-8", "replace").strip() not in field.vocabulary:
            raise SchemaError(f"field {field.name!r} is {data[:80]!r}, which is not in its vocabulary")
        return data
    is_format = field.format in (None, observed.format)
    if observed.encoding != field.encoding or not is_format or not _shape_fits(observed.shape, field.shape):
        raise misfit(field, data)
    if field.dtype not in ("object", observed.dtype) and not np.can_cast(observed.dtype, field.dtype):
        raise misfit(field, data)
    return data


def _shape_fits(shape: Shape, expected: Shape) -> bool:
    if shape and not expected:
        return True  # the rank varies
    return len(shape) == len(expected) and all(b in (None, a) for a, b in zip(shape, expected, strict=True))


def _store_array(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    array = (_texts if field.dtype in TEXT_DTYPES else _numbers)(field, value)
    if not _shape_fits(array.shape, field.shape) or (array.shape and not field.shape):
        raise misfit(field, value)
    if field.vocabulary is not None and array.size and not set(array.reshape(-1).tolist()) <= set(field.vocabulary):
        raise SchemaError(f"field {field.name!r} is {value!r}, which is not in its vocabulary")
    if field.encoding == "raw":
        ordered = np.ascontiguousarray(array)
        yield field.name, ordered.astype(ordered.dtype.newbyteorder("<"), copy=False).tobytes()
    else:
        yield field.name, array.reshape(-1) if array.dtype.kind != "O" else array.reshape(-1).tolist()
    if has_shape_feature(field):
        yield SHAPE.format(field.name), np.asarray(array.shape, np.int64)


def _texts(field: Field, value: Any) -> Any:
    """Return one or more bytes or strings as an array of objects."""
    plain = as_numpy(value)
    if isinstance(plain, np.ndarray):
        plain = plain.tolist()
    if isinstance(plain, bytes | bytearray | memoryview | str):
        array: Any = np.empty((), object)
        array[()] = plain
        return array
    depth = len(field.shape)
    flat, shape = _flattened(field, plain, depth)
    kinds = (str, bytes, bytearray, memoryview) if field.dtype != "string" else (str, bytes)
    if not all(isinstance(each, kinds) for each in flat):
        raise misfit(field, value)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def _flattened(field: Field, value: Any, depth: int) -> tuple[list[Any], tuple[int, ...]]:
    """Return the items of nested lists with `depth` levels, and the size of each level. Sizes must not vary."""
    level, shape = [value], list[int]()
    for _ in range(depth):
        if not all(isinstance(each, list | tuple) for each in level):
            raise misfit(field, value)
        sizes = {len(each) for each in level}
        if len(sizes) > 1:
            raise misfit(field, value)
        shape.append(sizes.pop() if sizes else field.shape[len(shape)] or 0)
        level = [item for each in level for item in each]
    return level, tuple(shape)


def _numbers(field: Field, value: Any) -> Any:
    """Return numbers as an array of the field's type. Only a type of floats may round them."""
    plain = as_numpy(value)
    try:
        array = np.asarray(plain)
    except (ValueError, OverflowError):
        raise misfit(field, value) from None
    if array.dtype.kind == "O" and array.ndim == 0 and hasattr(plain, "value"):
        array = np.asarray(plain.value)
    target = np.dtype(field.dtype)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype == target:
        return array
    if array.size == 0:
        inner = [size or 0 for size in field.shape[array.ndim :]]
        return array.astype(target).reshape(*array.shape, *inner)
    if array.dtype.kind not in "biuf" + target.kind or array.dtype.kind == "O":
        raise misfit(field, value)
    if array.dtype.kind == "f" and target.kind in "biu":
        raise misfit(field, value)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
    if target.kind in "biu" and not (converted == array).all():
        raise misfit(field, value)
    if target.kind == "f" and array.dtype.kind == "f" and (np.isinf(converted) & np.isfinite(array)).any():
        raise SchemaError(f"field {field.name!r}: a value does not fit into {field.dtype}; say encoding='raw'")
    return converted


def _store_ragged(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    rank = ragged_rank(field)
    lengths: list[list[int]] = []
    if hasattr(value, "nested_row_lengths"):
        value = value.to_list()
    plain = as_numpy(value)
    level: list[Any] = list(plain.tolist() if isinstance(plain, np.ndarray) else plain)
    for _ in range(rank):
        if not all(isinstance(each, list | tuple | np.ndarray) for each in level):
            raise misfit(field, value)
        lengths.append([len(each) for each in level])
        level = [item for each in level for item in each]
    inner = Field(field.name, field.dtype, (None, *field.shape[rank + 1 :]), "list")
    no_values: Any = [] if field.dtype in TEXT_DTYPES else np.zeros(0, field.dtype)
    flat = next(_store_array(inner, level))[1] if level else no_values
    yield from zip(feature_names(field), (flat, *(np.asarray(each, np.int64) for each in lengths)), strict=True)


def _store_sparse(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(value, "dense_shape"):
        array = _numbers(field, value)
        indices = np.argwhere(array)
        value = Sparse(indices, array[tuple(indices.T)], array.shape)
    shape = np.asarray(value.dense_shape, np.int64)
    if len(shape) != len(field.shape) or any(
        bound is not None and size > bound for size, bound in zip(shape.tolist(), field.shape, strict=True)
    ):
        raise misfit(field, value)
    inner = Field(field.name, field.dtype, (None,), "list")
    flat = next(_store_array(inner, np.asarray(value.values)))[1]
    columns = np.asarray(value.indices, np.int64).reshape(-1, len(shape)).T
    yield from zip(feature_names(field), (flat, *columns, shape), strict=True)


def restore(field: Field, features: Mapping[str, Any]) -> Any:
    """Return the value of a field that is stored in features.

    Raises:
        SchemaError: The features are missing or do not fit the field.
    """
    names = feature_names(field)
    if names[0] not in features:
        raise SchemaError(f"feature {names[0]!r} is missing; there are: {', '.join(features) or 'none'}")
    try:
        if field.sparse:
            return _restore_sparse(field, features, names)
        if field.ragged:
            return _restore_ragged(field, features, names)
        shape = [int(size) for size in features[names[1]]] if has_shape_feature(field) else None
        return _restore_array(field, features[names[0]], shape)
    except SchemaError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaError(f"field {field.name!r}: what is stored is no {field.type_text} ({error})") from error


def _list_values(field: Field, values: Any) -> Any:
    """Return the values of a list in the type of the field. An empty list may be read as bytes, whatever the type."""
    expected = wire_dtype(field)
    if isinstance(values, list):
        if expected != "bytes" and values:
            raise SchemaError(f"field {field.name!r}: bytes are stored, the schema says {field.type_text}")
        return values if expected == "bytes" else np.zeros(0, field.dtype)
    if values.dtype != expected:
        raise SchemaError(f"field {field.name!r}: {values.dtype} is stored, the schema says {field.type_text}")
    return values.astype(field.dtype, copy=False)


def _restore_array(field: Field, values: Any, shape: list[int] | None) -> Any:
    flat = _list_values(field, values)
    if field.is_file:
        (content,) = flat
        return content
    if field.encoding == "raw":
        (content,) = flat
        flat = np.frombuffer(content, np.dtype(field.dtype).newbyteorder("<")).astype(field.dtype, copy=False)
    elif wire_dtype(field) == "bytes":
        return _restore_texts(field, flat, shape)
    array = flat.reshape(_full_shape(field, len(flat)) if shape is None else shape)
    return array.item() if not field.shape and field.encoding == "list" else array[()]


def _full_shape(field: Field, count: int) -> list[int]:
    """Return the shape of a field; its only unknown size is computed from the number of values."""
    product = math.prod(1 if size is None else size for size in field.shape)
    unknown = count // product if product else 0
    return [unknown if size is None else size for size in field.shape]


def _restore_texts(field: Field, values: list[bytes], shape: list[int] | None) -> Any:
    texts: list[Any] = list(values)
    if field.dtype == "string":
        texts = [each.decode("utf-8", "surrogateescape") for each in values]
    if not field.shape:
        (content,) = texts
        return content
    sizes = _full_shape(field, len(texts)) if shape is None else shape
    total = int(np.prod(sizes))
    if total != len(texts):
        raise NoFeature(f"field {field.name!r}: {len(texts)} values are no {field.type_text}")
    for size in reversed(sizes[1:]):
        texts = (
            [texts[at : at + size] for at in range(0, len(texts), size)] if size else [[] for _ in range(sizes[0])]
        )
    return texts


def _restore_ragged(field: Field, features: Mapping[str, Any], names: list[str]) -> Any:
    inner = Field(field.name, field.dtype, (None, *field.shape[len(names) :]), "list")
    values = _restore_array(inner, features[names[0]], None)
    level: list[Any] = values if isinstance(values, list) else values.tolist()
    for name in reversed(names[1:]):
        lengths = list(map(int, features[name]))
        if sum(lengths) != len(level):
            raise SchemaError(f"field {field.name!r}: {name!r} says {sum(lengths)} values, there are {len(level)}")
        level = [level[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]
    return level


def _restore_sparse(field: Field, features: Mapping[str, Any], names: list[str]) -> Sparse:
    values = _list_values(field, features[names[0]])
    columns = [np.asarray(features[name], np.int64) for name in names[1:-1]]
    return Sparse(np.stack(columns, axis=1), values, np.asarray(features[names[-1]], np.int64))
