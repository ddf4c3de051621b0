"""A field's value ↔ the features of a tf.train.Example that hold it.

list     the values in a list of their kind, by rows; ragged: `<name>/ragged_flat_values` and
         `<name>/ragged_row_lengths_<i>`; sparse: `<name>/values`, `<name>/indices_<i>` and `<name>/shape`
raw      the array's bytes, little-endian, by rows
files    their bytes
Where two sizes or more are unknown, `<name>/shape` says them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ais_tar2tf.errors import NoFeature, SchemaError
from ais_tar2tf.features import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES
from ais_tar2tf.schema._field import TEXTS, Field, Shape
from ais_tar2tf.schema._misfits import misfit
from ais_tar2tf.schema._observe import observe
from ais_tar2tf.schema._written import written_number

__all__ = ["Sparse", "feature_names", "has_shape_feature", "ragged_rank", "restore", "store", "wire_dtype"]

_MOST = float(np.finfo(np.float32).max)
_INTEGERS = {
    name: range(int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}


class Sparse(NamedTuple):
    """Values at their indices, as tf.SparseTensor has them."""

    indices: Any  # int64, one row a value
    values: Any
    dense_shape: Any


def wire_dtype(field: Field) -> str:
    """The list that holds it: bytes, float32 or int64."""
    if field.encoding != "list" or field.dtype in TEXTS:
        return "bytes"
    return "float32" if np.dtype(field.dtype).kind == "f" else "int64"


def ragged_rank(field: Field) -> int:
    """How many levels of row lengths a ragged field has."""
    return max((at for at, size in enumerate(field.shape) if size is None), default=1) if field.ragged else 0


def has_shape_feature(field: Field) -> bool:
    """Whether a record says its shape: where the number of its values does not tell it."""
    return field.sparse or (not field.ragged and field.encoding in ("list", "raw") and field.shape.count(None) > 1)


def feature_names(field: Field) -> list[str]:
    """The features that hold a field; the first one holds its values."""
    name = field.name
    if field.sparse:
        indices = [INDICES.format(name, dimension) for dimension in range(len(field.shape))]
        return [VALUES.format(name), *indices, SHAPE.format(name)]
    if field.ragged:
        return [FLAT_VALUES.format(name), *(ROW_LENGTHS.format(name, level) for level in range(ragged_rank(field)))]
    return [name, SHAPE.format(name)] if has_shape_feature(field) else [name]


def store(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    """The features of a value; SchemaError when it does not fit."""
    plain = _as_it_is(field, value)
    if plain is not None:
        return iter(((field.name, plain),))
    if field.is_file:
        return iter(((field.name, _file_bytes(field, value)),))
    if field.sparse:
        return _store_sparse(field, value)
    if field.ragged:
        return _store_ragged(field, value)
    return _store_array(field, value)


def _as_it_is(field: Field, value: Any) -> Any:
    """What is stored of a value that fits at first sight, which most do; None for all that has to be looked at."""
    of = type(value)
    if of is np.ndarray:
        return _array_as_it_is(field, value)
    if field.shape or field.encoding != "list" or field.vocabulary is not None:
        return None
    if of is int:
        return value if field.dtype in _INTEGERS and value in _INTEGERS[field.dtype] else None
    if of is float:
        return value if field.dtype in ("float32", "float64") and -_MOST < value < _MOST else None
    if of in (str, bytes):
        return value if field.dtype in TEXTS else written_number(field, value)
    return None


def _array_as_it_is(field: Field, array: Any) -> Any:
    """The bytes of an array of one dimension, or the only one of its integers."""
    if len(field.shape) != 1 or array.ndim != 1 or field.ragged or field.sparse or field.vocabulary is not None:
        return None
    if array.dtype != field.dtype or field.shape[0] not in (None, len(array)):
        return None
    if field.encoding == "raw" and array.dtype.isnative and sys.byteorder == "little":
        return array.tobytes()
    return array.item() if field.encoding == "list" and len(array) == 1 and array.dtype.kind == "i" else None


def _file_bytes(field: Field, given: Any) -> bytes:
    value = _plain(given)
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
    """A file whose kind is known by its first bytes is of that kind, size and type."""
    if field.encoding not in ("image", "npy", "text"):
        return data
    seen = observe(field.name, data)
    assert seen is not None
    if field.encoding == "text":
        if field.dtype != "string" and seen.dtype not in (field.dtype, "int64"):
            raise misfit(field, data)
        if field.vocabulary is not None and data.decode("utf-8", "replace").strip() not in field.vocabulary:
            raise SchemaError(f"field {field.name!r} is {data[:80]!r}, which is not in its vocabulary")
        return data
    formats = field.format in (None, seen.format)
    if seen.encoding != field.encoding or not formats or not _shape_fits(seen.shape, field.shape):
        raise misfit(field, data)
    if field.dtype not in ("object", seen.dtype) and not np.can_cast(seen.dtype, field.dtype):
        raise misfit(field, data)
    return data


def _shape_fits(found: Shape, said: Shape) -> bool:
    if not said and found:
        return True  # an image or array whose rank varies
    return len(found) == len(said) and all(want in (None, size) for size, want in zip(found, said, strict=True))


def _store_array(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    array = (_texts if field.dtype in TEXTS else _numbers)(field, value)
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


def _plain(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def _texts(field: Field, value: Any) -> Any:
    """Bytes or text as an array of objects."""
    plain = _plain(value)
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
    """Rectangular lists of `depth` levels, and their sizes."""
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
    """An array of the field's type; what would be changed by that is refused, except floats made less exact."""
    plain = _plain(value)
    try:
        array = np.asarray(plain)
    except (ValueError, OverflowError):
        raise misfit(field, value) from None
    if array.dtype.kind == "O" and array.ndim == 0 and hasattr(plain, "value"):
        array = np.asarray(plain.value)
    said = np.dtype(field.dtype)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype == said:
        return array
    if array.size == 0:
        below = [size or 0 for size in field.shape[array.ndim :]]
        return array.astype(said).reshape(*array.shape, *below)
    if array.dtype.kind not in "biuf" + said.kind or array.dtype.kind == "O":
        raise misfit(field, value)
    if array.dtype.kind == "f" and said.kind in "biu":
        raise misfit(field, value)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(said)
    whole = said.kind in "biu"
    if whole and not (converted == array).all():
        raise misfit(field, value)
    if said.kind == "f" and array.dtype.kind == "f" and (np.isinf(converted) & np.isfinite(array)).any():
        raise SchemaError(f"field {field.name!r}: a value does not fit into {field.dtype}; say encoding='raw'")
    return converted


def _store_ragged(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    rank = ragged_rank(field)
    lengths: list[list[int]] = []
    if hasattr(value, "nested_row_lengths"):
        value = value.to_list()
    plain = _plain(value)
    level: list[Any] = list(plain.tolist() if isinstance(plain, np.ndarray) else plain)
    for _ in range(rank):
        if not all(isinstance(each, list | tuple | np.ndarray) for each in level):
            raise misfit(field, value)
        lengths.append([len(each) for each in level])
        level = [item for each in level for item in each]
    inner = Field(field.name, field.dtype, (None, *field.shape[rank + 1 :]), "list")
    flat = next(_store_array(inner, level))[1] if level else _no_values(field)
    yield FLAT_VALUES.format(field.name), flat
    for depth, each in enumerate(lengths):
        yield ROW_LENGTHS.format(field.name, depth), np.asarray(each, np.int64)


def _no_values(field: Field) -> Any:
    return [] if field.dtype in TEXTS else np.zeros(0, field.dtype)


def _store_sparse(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(value, "dense_shape"):
        array = _numbers(field, value)
        indices = np.argwhere(array)
        value = Sparse(indices, array[tuple(indices.T)], array.shape)
    shape = np.asarray(value.dense_shape, np.int64)
    if len(shape) != len(field.shape) or any(
        want is not None and size > want for size, want in zip(shape.tolist(), field.shape, strict=True)
    ):
        raise misfit(field, value)
    inner = Field(field.name, field.dtype, (None,), "list")
    flat = next(_store_array(inner, np.asarray(value.values)))[1]
    yield VALUES.format(field.name), flat
    for dimension, column in enumerate(np.asarray(value.indices, np.int64).reshape(-1, len(shape)).T):
        yield INDICES.format(field.name, dimension), column
    yield SHAPE.format(field.name), shape


# And back.


def restore(field: Field, found: Mapping[str, Any]) -> Any:
    """The value that a field's features hold."""
    names = feature_names(field)
    if names[0] not in found:
        raise SchemaError(f"feature {names[0]!r} is missing; there are: {', '.join(found) or 'none'}")
    try:
        if field.sparse:
            return _restore_sparse(field, found, names)
        if field.ragged:
            return _restore_ragged(field, found, names)
        shape = [int(size) for size in found[names[1]]] if has_shape_feature(field) else None
        return _restore_array(field, found[names[0]], shape)
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"field {field.name!r}: what is stored is no {field.type_text} ({error})") from error


def _listed(field: Field, values: Any) -> Any:
    """The values of a list feature; an empty one has no kind."""
    wanted = wire_dtype(field)
    if isinstance(values, list):
        if wanted != "bytes" and values:
            raise SchemaError(f"field {field.name!r}: bytes are stored, the schema says {field.type_text}")
        return values if wanted == "bytes" else np.zeros(0, field.dtype)
    if values.dtype != wanted:
        raise SchemaError(f"field {field.name!r}: {values.dtype} is stored, the schema says {field.type_text}")
    return values.astype(field.dtype, copy=False)


def _restore_array(field: Field, values: Any, shape: list[int] | None) -> Any:
    flat = _listed(field, values)
    if field.is_file:
        (only,) = flat
        return only
    if field.encoding == "raw":
        (only,) = flat
        flat = np.frombuffer(only, np.dtype(field.dtype).newbyteorder("<")).astype(field.dtype, copy=False)
    elif wire_dtype(field) == "bytes":
        return _restore_texts(field, flat, shape)
    array = flat.reshape(_full_shape(field, len(flat)) if shape is None else shape)
    return array.item() if not field.shape and field.encoding == "list" else array[()]


def _full_shape(field: Field, count: int) -> list[int]:
    """The shape with its one unknown size worked out."""
    known = 1
    for size in field.shape:
        known *= 1 if size is None else size
    missing = count // known if known else 0
    return [missing if size is None else size for size in field.shape]


def _restore_texts(field: Field, values: list[bytes], shape: list[int] | None) -> Any:
    texts: list[Any] = (
        [each.decode("utf-8", "surrogateescape") for each in values] if field.dtype == "string" else list(values)
    )
    if not field.shape:
        (only,) = texts
        return only
    sizes = _full_shape(field, len(texts)) if shape is None else shape
    total = int(np.prod(sizes))
    if total != len(texts):
        raise NoFeature(f"field {field.name!r}: {len(texts)} values are no {field.type_text}")
    for size in reversed(sizes[1:]):
        texts = (
            [texts[at : at + size] for at in range(0, len(texts), size)] if size else [[] for _ in range(sizes[0])]
        )
    return texts


def _restore_ragged(field: Field, found: Mapping[str, Any], names: list[str]) -> Any:
    inner = Field(field.name, field.dtype, (None, *field.shape[len(names) :]), "list")
    values = _restore_array(inner, found[names[0]], None)
    level: list[Any] = values if isinstance(values, list) else values.tolist()
    for name in reversed(names[1:]):
        rows, at = list[Any](), 0
        for length in _row_lengths(found, name):
            rows.append(level[at : at + length])
            at += length
        if at != len(level):
            raise SchemaError(f"field {field.name!r}: {name!r} says {at} values, there are {len(level)}")
        level = rows
    return level


def _row_lengths(found: Mapping[str, Any], name: str) -> list[int]:
    return [int(length) for length in found[name]]


def _restore_sparse(field: Field, found: Mapping[str, Any], names: list[str]) -> Sparse:
    values = _listed(field, found[names[0]])
    columns = [np.asarray(found[name], np.int64) for name in names[1:-1]]
    return Sparse(np.stack(columns, axis=1), values, np.asarray(found[names[-1]], np.int64))
