"""`observe`: returns the field that describes one value.

The first bytes of a file, or the Python type of any other value, determine the field. `Inference` merges the fields
of many values.
"""

from __future__ import annotations

import contextlib
import enum
import re
from typing import Any

import numpy as np

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import NoFeature, SchemaError
from ais_tar2tf.values.file_headers import array_header, image_header, media_kind
from ais_tar2tf.values.schema.field import ANY, LIST_DTYPES, Field, Shape
from ais_tar2tf.values.schema.kinds import kind_of_field

__all__ = ["label_text", "observe"]

_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,18}\s*")
_FLOAT = re.compile(rb"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_MAX_NUMBER = 64  # bytes of a text that may be a number
_CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # text has none of these
_FILE_DTYPES = {"msgpack": "object", "npz": "object", "audio": "float32", "hdf5": "object", "netcdf": "object"}


def observe(name: str, value: Any) -> Field | None:
    """Return the field that describes `value`, or None when the value is absent."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _observe_file(name, bytes(value))
    if isinstance(value, str):
        return Field(name, "string")
    if isinstance(value, enum.Enum):
        return observe(name, value.value)
    if isinstance(value, bool | np.bool_):
        return Field(name, "bool")
    if isinstance(value, int):
        return _observe_int(name, value)
    if isinstance(value, float) and not isinstance(value, np.generic):  # a numpy float states its precision
        return Field(name, "float32")
    return None if value is None else _observe_collection(name, value)


def _observe_int(name: str, value: int) -> Field:
    if -(2**63) <= value < 2**63:
        return Field(name, "int64")
    if 0 <= value < 2**64:
        return Field(name, "uint64", (), "raw")
    raise NoFeature(f"field {name!r}: {value} does not fit into 64 bits")


def _observe_collection(name: str, value: Any) -> Field:
    if hasattr(value, "dense_shape"):  # a tf.SparseTensor or a Sparse
        dtype = _array_dtype(name, np.asarray(value.values).dtype)
        return Field(name, dtype, tuple(np.asarray(value.dense_shape).tolist()), "list", sparse=True)
    if hasattr(value, "nested_row_lengths"):  # a tf.RaggedTensor
        flat = np.asarray(value.flat_values)
        ranks = len(value.nested_row_lengths())
        rows = int(np.asarray(value.nested_row_lengths()[0]).size)
        return Field(name, _array_dtype(name, flat.dtype), (rows, *[None] * ranks, *flat.shape[1:]), ragged=True)
    if hasattr(value, "numpy"):
        value = value.numpy()
        if not isinstance(value, np.ndarray | np.generic):
            return observe(name, value) or Field(name, ANY)
    if isinstance(value, np.ndarray | np.generic):
        return _observe_array(name, np.asarray(value))
    if isinstance(value, list | tuple):
        return _observe_list(name, list(value))
    if isinstance(value, dict):
        return Field(name, "object", (), "json")
    raise NoFeature(f"field {name!r}: {type(value).__name__} is not bytes, text, a number, or a list of them")


def _array_dtype(name: str, dtype: Any) -> str:
    if dtype.kind in "OSU":
        return "string" if dtype.kind == "U" else "bytes"
    if dtype.names is not None:
        raise NoFeature(f"field {name!r}: {dtype} has no form in a record file")
    return "float32" if dtype.name == "bfloat16" else dtype.newbyteorder("=").name


def _observe_array(name: str, array: Any) -> Field:
    if array.dtype.kind == "O":
        return _observe_list(name, array.tolist()) if array.ndim else Field(name, "bytes")
    dtype = _array_dtype(name, array.dtype)
    return Field(name, dtype, array.shape, "list" if dtype in LIST_DTYPES else "raw")


def _observe_list(name: str, values: list[Any]) -> Field:
    """Observe nested lists, level by level. The types of all innermost values must merge."""
    shape: list[int | None] = [len(values)]
    ragged = False
    level = [_as_list(item) for item in values]
    while level and all(isinstance(each, list | tuple) for each in level):
        sizes = {len(each) for each in level}
        ragged = ragged or len(sizes) > 1
        shape.append(sizes.pop() if len(sizes) == 1 else None)
        level = [_as_list(item) for each in level for item in each]
    if any(isinstance(each, list | tuple) for each in level):
        raise NoFeature(f"field {name!r} mixes lists with other values")
    if not level:
        return Field(name, ANY, tuple(shape), ragged=ragged)
    items = [_observe_item(name, each) for each in level]
    item = items[0]
    for other in items[1:]:
        item = item if item == other else item.merge(other)
    if item.dtype == "float64":
        item = Field(name, "float32", item.shape)
    return Field(name, item.dtype, (*shape, *item.shape), item.encoding, ragged=ragged)


def _as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value


def _observe_item(name: str, value: Any) -> Field:
    if isinstance(value, bytes | bytearray | memoryview):
        return Field(name, "bytes")
    observed = observe(name, value)
    if observed is None or observed.is_file:
        raise NoFeature(f"field {name!r}: a list holds {type(value).__name__}")
    return observed


def _observe_file(name: str, data: bytes) -> Field:
    expected = kind_of_field(name)
    observed = _observe_magic(name, data, expected)
    if observed is None and expected in ("msgpack", "npz"):
        observed = Field(name, _FILE_DTYPES[expected], (), expected)
    if observed is None:
        observed = _observe_text(name, data, json_expected=expected == "json")
    if expected not in (None, "text", observed.encoding):
        raise SchemaError(f"field {name!r} is {_description(observed)}, and its name says {expected}")
    return observed


def _description(field: Field) -> str:
    return "bytes of no known kind" if field.dtype == "bytes" else f"{field.type_text} ({field.encoding_text})"


def _observe_magic(name: str, data: bytes, expected: str | None) -> Field | None:
    """Observe a file whose first bytes show its kind; return None for any other file.

    A BMP begins with two letters, as a text can. So a BMP is recognised only in a field with an image's extension.
    """
    if expected in (None, "image") and (image := image_header(data)) is not None:
        if image.format == "bmp" and expected is None:
            return None
        shape: Shape = (image.height, image.width, image.channels)
        return Field(name, image.dtype, shape, "image", format=image.format)
    if (array := array_header(data)) is not None:
        return Field(name, array.dtype, array.shape, "npy")
    kind = media_kind(data)
    if expected == "netcdf" and (kind == "hdf5" or data[:4] == b"\x89HDF"):  # netCDF-4 is HDF5
        kind = "netcdf"
    if kind is None:
        return None
    return Field(name, _FILE_DTYPES[kind], (None, None) if kind == "audio" else (), kind)


def _observe_text(name: str, data: bytes, *, json_expected: bool) -> Field:
    if json_expected or data[:1] in (b"{", b"["):
        with contextlib.suppress(SchemaError):
            json_value(data)
            return Field(name, "object", (), "json")
    if len(data) <= _MAX_NUMBER:
        if _INTEGER.fullmatch(data):
            return Field(name, "int64", (), "text")
        if _FLOAT.fullmatch(data):
            return Field(name, "float64", (), "text")
    try:
        data.decode()
    except UnicodeDecodeError:
        return Field(name, "bytes")
    return Field(name, "bytes") if _CONTROL_CHARACTERS.search(data) else Field(name, "string", (), "text")


def label_text(value: Any) -> str | None:
    """Return a label without surrounding whitespace, or None when the value is not text."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    return value.strip() if isinstance(value, str) else None
