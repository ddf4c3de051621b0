"""The eight types of TFRecorder's fields, and the features of a tf.train.Example that store a field of each type.

One or two features store a field. For a field with the name `name`, this table lists the name and the content of each
feature:

    BOOL, INT32, INT64    name: int64_list
    FLOAT                 name: float_list
    DOUBLE                name: float_list, rounded        name/float64: the exact eight bytes
    STRING                name: bytes_list
    ARRAY_…               name: the bytes of all numbers   name/shape: int64_list

Features with a slash in their name are optional, because the original TFRecorder does not write them. This module
must not do I/O, or use TensorFlow.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.features import SHAPE, as_float32s
from ais_tar2tf.values.schema import Field, Schema

__all__ = ["EXACT", "FieldType", "Shape", "dense_schema", "schema_of", "stored_values"]

EXACT = "{}/float64"  # the name of the feature that stores the exact value of a DOUBLE; {} is the field's name
Shape = tuple[int, ...]


class FieldType(enum.Enum):
    """The types that `@tfrecordable(dtype=…)` accepts.

    The value of each member is the type of the field's values in datasets, with "array " before it for arrays.
    """

    TYPE_BOOL = "bool"
    TYPE_INT32 = "int32"
    TYPE_INT64 = "int64"
    TYPE_FLOAT = "float32"
    TYPE_DOUBLE = "float64"
    TYPE_STRING = "string"
    TYPE_ARRAY_INT32 = "array int32"
    TYPE_ARRAY_FLOAT32 = "array float32"

    @property
    def is_array(self) -> bool:
        """Whether the field is an array."""
        return self.value.startswith("array ")

    @property
    def dtype(self) -> str:
        """The type of the field's values, or of the array's numbers: a name of numpy, or "string"."""
        return self.value.removeprefix("array ")


def schema_of(types: Mapping[str, FieldType], *, shapes: bool = True) -> Schema:
    """Return the schema of records with fields of these types. With `shapes`, include the features `name/shape`."""
    return Schema(tuple(field for name, kind in types.items() for field in _fields(name, kind, shapes)))


def dense_schema(types: Mapping[str, FieldType], shapes: Mapping[str, Shape]) -> Schema | None:
    """Return the schema for fast reading: one feature for each field, with the same number of values in all records.

    Only records that this package wrote certainly fit this schema, because a DOUBLE is read from its optional
    feature. Return None if the shape of an array is unknown.
    """
    if any(kind.is_array and name not in shapes for name, kind in types.items()):
        return None
    return Schema(tuple(_dense_field(name, kind, shapes) for name, kind in types.items()))


def _dense_field(name: str, kind: FieldType, shapes: Mapping[str, Shape]) -> Field:
    """Return the only feature from which a field is read. This feature has equally many values in all records."""
    if kind.is_array:
        return Field(name, kind.dtype, (math.prod(shapes[name]),), "raw")
    if kind is FieldType.TYPE_DOUBLE:
        return Field(EXACT.format(name), "float64", (), "raw")
    return Field(name, kind.dtype)


def _fields(name: str, kind: FieldType, shapes: bool) -> tuple[Field, ...]:
    if kind.is_array:
        values = Field(name, kind.dtype, (None,), "raw")
        return (values, Field(SHAPE.format(name), "int64", (None,), optional=True)) if shapes else (values,)
    if kind is FieldType.TYPE_DOUBLE:
        return Field(name, "float32"), Field(EXACT.format(name), "float64", (), "raw", optional=True)
    return (Field(name, kind.dtype),)


def stored_values(types: Mapping[str, FieldType], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features that store a record: a dict of their values, with the names that `schema_of(types)` has.

    Raises:
        SchemaError: A value is None, or does not have the type of its field.
    """
    record: dict[str, Any] = {}
    for name, kind in types.items():
        value = values[name]
        if value is None:
            raise SchemaError(f"field {name!r} is None: assign it in __init__, or in load")
        if kind.is_array:
            array = _array(name, kind, value)
            record[name] = array.reshape(-1)
            record[SHAPE.format(name)] = np.asarray(array.shape, np.int64)
        elif kind is FieldType.TYPE_DOUBLE:
            record.update(_double(name, value))
        else:
            record[name] = value
    return record


def _array(name: str, kind: FieldType, value: Any) -> Any:
    """Return a value as an array of its field's type.

    Raises:
        SchemaError: The value is no array of numbers, or the type cannot hold its numbers.
    """
    try:
        array = np.atleast_1d(np.asarray(value))
    except ValueError as error:
        raise SchemaError(f"field {name!r} is declared {kind.name}, and its value is no array ({error})") from error
    if array.dtype == kind.dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise SchemaError(f"field {name!r} is declared {kind.name}, and its value is of {array.dtype}")
    if kind is FieldType.TYPE_ARRAY_INT32 and array.size and (array.dtype.kind == "f" or _overflows(array)):
        problem = array.dtype if array.dtype.kind == "f" else "integers that do not fit"
        raise SchemaError(
            f"field {name!r} is declared {kind.name}, and its array is of {problem}: "
            "convert it, or declare TYPE_ARRAY_FLOAT32"
        )
    return as_float32s(name, array) if array.dtype.kind == "f" else array.astype(kind.dtype)


def _overflows(array: Any) -> bool:
    bounds = np.iinfo(np.int32)
    return array.dtype.kind != "b" and (int(array.min()) < bounds.min or int(array.max()) > bounds.max)


def _double(name: str, value: Any) -> dict[str, Any]:
    """Return the two features of a DOUBLE: the rounded value, and the exact value."""
    try:
        exact = np.float64(value)
    except (TypeError, ValueError):
        raise SchemaError(f"field {name!r} is declared TYPE_DOUBLE, and its value is {value!r}") from None
    with np.errstate(over="ignore", under="ignore"):
        return {name: exact.astype(np.float32), EXACT.format(name): exact}
