"""One value → the field it shows: for files by their first bytes, for Python's values by what they are."""

from __future__ import annotations

import enum
import re
from typing import Any

import numpy as np

from ais_tar2tf.errors import NoFeature, SchemaError
from ais_tar2tf.headers import array_header, image_header, media_kind
from ais_tar2tf.schema._field import ANY, LISTED, Field, Shape
from ais_tar2tf.schema._kinds import kind_of_field
from ais_tar2tf.values import json_value

__all__ = ["label_text", "observe"]

_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,18}\s*")
_FLOAT = re.compile(rb"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_LONGEST_NUMBER = 64  # bytes
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # which text does without
_FILE_DTYPES = {"msgpack": "object", "npz": "object", "audio": "float32", "hdf5": "object", "netcdf": "object"}


def observe(name: str, value: Any) -> Field | None:
    """What `value` says of the field `name`; None says that the field is absent."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_file(name, bytes(value))
    if isinstance(value, str):
        return Field(name, "string")
    if isinstance(value, enum.Enum):
        return observe(name, value.value)
    if isinstance(value, bool | np.bool_):
        return Field(name, "bool")
    if isinstance(value, int):
        return _of_int(name, value)
    if isinstance(value, float) and not isinstance(value, np.generic):  # NumPy's says how exact it is meant to be
        return Field(name, "float32")
    return None if value is None else _of_many(name, value)


def _of_int(name: str, value: int) -> Field:
    if -(2**63) <= value < 2**63:
        return Field(name, "int64")
    if 0 <= value < 2**64:
        return Field(name, "uint64", (), "raw")
    raise NoFeature(f"field {name!r}: {value} does not fit into 64 bits")


def _of_many(name: str, value: Any) -> Field:
    if hasattr(value, "dense_shape"):  # a tf.SparseTensor, or ours
        dtype = _numeric(name, np.asarray(value.values).dtype)
        return Field(name, dtype, tuple(np.asarray(value.dense_shape).tolist()), "list", sparse=True)
    if hasattr(value, "nested_row_lengths"):  # a tf.RaggedTensor
        flat = np.asarray(value.flat_values)
        ranks = len(value.nested_row_lengths())
        rows = int(np.asarray(value.nested_row_lengths()[0]).size)
        return Field(name, _numeric(name, flat.dtype), (rows, *[None] * ranks, *flat.shape[1:]), ragged=True)
    if hasattr(value, "numpy"):
        value = value.numpy()
        if not isinstance(value, np.ndarray | np.generic):
            return observe(name, value) or Field(name, ANY)
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(name, np.asarray(value))
    if isinstance(value, list | tuple):
        return _of_list(name, list(value))
    if isinstance(value, dict):
        return Field(name, "object", (), "json")
    raise NoFeature(f"field {name!r}: {type(value).__name__} is not bytes, text, a number, or a list of them")


def _numeric(name: str, dtype: Any) -> str:
    if dtype.kind in "OSU":
        return "string" if dtype.kind == "U" else "bytes"
    if dtype.names is not None:
        raise NoFeature(f"field {name!r}: {dtype} has no form in a record file")
    return "float32" if dtype.name == "bfloat16" else dtype.newbyteorder("=").name


def _of_array(name: str, array: Any) -> Field:
    if array.dtype.kind == "O":
        return _of_list(name, array.tolist()) if array.ndim else Field(name, "bytes")
    dtype = _numeric(name, array.dtype)
    return Field(name, dtype, array.shape, "list" if dtype in LISTED else "raw")


def _of_list(name: str, values: list[Any]) -> Field:
    """Lists in lists, by levels; the innermost values have one type."""
    shape: list[int | None] = [len(values)]
    ragged = False
    level = [_unwrapped(each) for each in values]
    while level and all(isinstance(each, list | tuple) for each in level):
        sizes = {len(each) for each in level}
        ragged = ragged or len(sizes) > 1
        shape.append(sizes.pop() if len(sizes) == 1 else None)
        level = [_unwrapped(item) for each in level for item in each]
    if any(isinstance(each, list | tuple) for each in level):
        raise NoFeature(f"field {name!r} has lists beside values that are none")
    if not level:
        return Field(name, ANY, tuple(shape), ragged=ragged)
    items = [_of_item(name, each) for each in level]
    item = items[0]
    for other in items[1:]:
        item = item if item == other else item.merge(other)
    if item.dtype == "float64":
        item = Field(name, "float32", item.shape)
    return Field(name, item.dtype, (*shape, *item.shape), item.encoding, ragged=ragged)


def _unwrapped(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value


def _of_item(name: str, value: Any) -> Field:
    if isinstance(value, bytes | bytearray | memoryview):
        return Field(name, "bytes")
    found = observe(name, value)
    if found is None or found.is_file:
        raise NoFeature(f"field {name!r}: a list holds {type(value).__name__}")
    return found


# Files.


def _of_file(name: str, data: bytes) -> Field:
    expected = kind_of_field(name)
    found = _by_mark(name, data, expected)
    if found is None and expected in ("msgpack", "npz"):
        found = Field(name, _FILE_DTYPES[expected], (), expected)
    if found is None:
        found = _of_text(name, data, json_expected=expected == "json")
    if expected not in (None, "text", found.encoding):
        raise SchemaError(f"field {name!r} is {_said(found)}, and its name says {expected}")
    return found


def _said(field: Field) -> str:
    return "bytes of no known kind" if field.dtype == "bytes" else f"{field.type_text} ({field.encoding_text})"


def _by_mark(name: str, data: bytes, expected: str | None) -> Field | None:
    """A file that begins with a mark; BMP's two letters count only where the name says that it is an image."""
    if expected in (None, "image") and (image := image_header(data)) is not None:
        if image.format == "bmp" and expected is None:
            return None
        shape: Shape = (image.height, image.width, image.channels)
        return Field(name, image.dtype, shape, "image", format=image.format)
    if (array := array_header(data)) is not None:
        return Field(name, array.dtype, array.shape, "npy")
    kind = media_kind(data)
    if kind is None and expected == "netcdf" and data[:4] == b"\x89HDF":
        kind = "netcdf"
    if kind == "hdf5" and expected == "netcdf":  # netCDF-4 is HDF5
        kind = "netcdf"
    return Field(name, _FILE_DTYPES[kind], (None, None) if kind == "audio" else (), kind) if kind else None


def _of_text(name: str, data: bytes, *, json_expected: bool) -> Field:
    if json_expected or data[:1] in (b"{", b"["):
        try:
            json_value(data)
        except SchemaError:
            pass
        else:
            return Field(name, "object", (), "json")
    if len(data) <= _LONGEST_NUMBER:
        if _INTEGER.fullmatch(data):
            return Field(name, "int64", (), "text")
        if _FLOAT.fullmatch(data):
            return Field(name, "float64", (), "text")
    try:
        data.decode()
    except UnicodeDecodeError:
        return Field(name, "bytes")
    return Field(name, "bytes") if _CONTROLS.search(data) else Field(name, "string", (), "text")


def label_text(value: Any) -> str | None:
    """A label as its vocabulary has it; None for what is no text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        try:
            return value.decode().strip()
        except UnicodeDecodeError:
            return None
    return None
