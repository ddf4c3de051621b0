"""What all ops share: the two kinds of them, and errors that name the record and the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ais_tar2tf.errors import MappingError, MissingDependency, MissingField, OptionError, SchemaError, Tar2TFError
from ais_tar2tf.mapping import is_tensor, told
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import Record, said_fields

__all__ = [
    "Conversion",
    "Op",
    "Selection",
    "failure_of",
    "field_of",
    "no_field",
    "place_of",
    "replaced",
    "type_name",
]


_NOT_NUMPYS = ("string", "bfloat16")


class Op:
    """A step of a pipeline: `reads` are the fields that it needs, None when nobody knows."""

    def __post_init__(self) -> None:
        if getattr(self, "field", None) == "":
            raise OptionError(f"{type(self).__name__}.field is the name of a field, not an empty text")

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset()

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the op's name as `op`."""
        raise SchemaError(f"{type(self).__name__} cannot be written as JSON")


class Conversion(Op):
    """From a record to a new one."""

    def __call__(self, record: Record) -> Record:
        raise NotImplementedError


class Selection(Op):
    """From a record to a value."""

    def __call__(self, record: Record) -> Any:
        raise NotImplementedError


def type_name(dtype: Any) -> str:
    """A type of NumPy's, TensorFlow's or Python's by the name that TensorFlow has for it."""
    name = getattr(dtype, "name", dtype)
    if name is None:  # which NumPy takes for float64
        raise SchemaError("there is no type None: say one, as 'float32'")
    if name in _NOT_NUMPYS:
        return name
    try:
        found = np.dtype(name)
    except TypeError as error:
        raise SchemaError(f"there is no type {dtype!r}: say one, as 'float32' or 'int64'") from error
    return "string" if found.kind in "SU" else found.name


def field_of(record: Record, name: str) -> Any:
    try:
        return record[name]
    except KeyError:
        raise no_field(record, name) from None


def no_field(record: Record, *names: str) -> MissingField:
    there = said_fields(record)
    near = suggestion(names[0], record)
    return MissingField(f"field {' or '.join(names)!r} is missing (there are: {there}){near}", **place_of(record))


def place_of(record: Record) -> dict[str, str]:
    """Where a record is from; a graph's is from nowhere."""
    said = {part: record.get(f"__{part}__", "") for part in ("shard", "key")}
    return {part: "(any)" if is_tensor(value) else str(value) for part, value in said.items()}


def replaced(record: Record, name: str, function: Callable[[Any], Any], what: str) -> Record:
    """The record with another value of one field; on plain records errors name it."""
    value = field_of(record, name)
    if is_tensor(value):
        return {**record, name: function(value)}
    try:
        return {**record, name: function(value)}
    except Exception as error:
        raise failure_of(error, record, f"{what}({name!r})") from error


def failure_of(error: Exception, record: Record, what: str) -> Tar2TFError:
    if isinstance(error, MappingError | MissingField | MissingDependency):
        return error
    return MappingError(f"{what} failed: {told(error)}", **place_of(record))
