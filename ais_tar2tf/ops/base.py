"""The base classes of all ops, and errors that name the record and the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import MappingError, MissingDependency, MissingField, OptionError, SchemaError, Tar2TFError
from ais_tar2tf.records import Record, listed_fields
from ais_tar2tf.values.graph_values import is_tensor
from ais_tar2tf.values.mapping_errors import describe_error

__all__ = [
    "ConversionOp",
    "Op",
    "SelectionOp",
    "failure_of",
    "field_of",
    "missing_field",
    "place_of",
    "replaced",
    "type_name",
]


_NOT_NUMPYS = ("string", "bfloat16")


class Op:
    """A step of a pipeline. Every op is a frozen dataclass of its settings."""

    def __post_init__(self) -> None:
        if getattr(self, "field", None) == "":
            raise OptionError(f"{type(self).__name__}.field is the name of a field, not an empty text")

    @property
    def reads(self) -> frozenset[str] | None:
        """The fields of the record that the op needs; None if that is unknown."""
        return frozenset({getattr(self, "field")})  # noqa: B009  # ops without a field have a property of their own

    def to_json(self) -> dict[str, Any]:
        """Return the op as plain values: its name as `op`, and every setting that differs from its default.

        Returns:
            A dict that `json.dumps` accepts and `from_json` reads.

        Raises:
            SchemaError: The op holds a function, or a selection with one.
        """
        settings: dict[str, Any] = {"op": type(self).__name__}
        for field in fields(self):  # pyright: ignore[reportArgumentType]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if value != field.default:
                settings[field.name] = list(value) if isinstance(value, tuple) else value
        return settings


class ConversionOp(Op):
    """An op that returns a new record."""

    def __call__(self, record: Record) -> Record:
        """Convert a record. The record itself stays unchanged.

        Args:
            record: A record of plain values or of tensors.

        Returns:
            The new record.

        Raises:
            MissingField: The record lacks a field that the op reads.
            MappingError: A plain value cannot be converted.
        """
        raise NotImplementedError


class SelectionOp(Op):
    """An op that returns a value of a record."""

    def __call__(self, record: Record) -> Any:
        """Select a value.

        Args:
            record: A record of plain values or of tensors.

        Returns:
            The value.

        Raises:
            MissingField: The record lacks a field that the op reads.
            MappingError: A plain value does not contain what is selected.
        """
        raise NotImplementedError


def type_name(dtype: Any) -> str:
    """Return TensorFlow's name of a type of NumPy, TensorFlow or Python."""
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
    """Return the value of a field.

    Raises:
        MissingField: The record lacks it.
    """
    try:
        return record[name]
    except KeyError:
        raise missing_field(record, name) from None


def missing_field(record: Record, *names: str) -> MissingField:
    """Return the error for a record that lacks all of the named fields."""
    existing = listed_fields(record)
    near = suggestion(names[0], record)
    return MissingField(f"field {' or '.join(names)!r} is missing (there are: {existing}){near}", **place_of(record))


def place_of(record: Record) -> dict[str, str]:
    """Return the shard and the key of a record, for an error; "(any)" for a record of tensors."""
    place = {part: record.get(f"__{part}__", "") for part in ("shard", "key")}
    return {part: "(any)" if is_tensor(value) else str(value) for part, value in place.items()}


def replaced(record: Record, name: str, function: Callable[[Any], Any], op: str) -> Record:
    """Return the record with `function` applied to one field. Errors on plain values name the op and the field."""
    value = field_of(record, name)
    if is_tensor(value):
        return {**record, name: function(value)}
    try:
        return {**record, name: function(value)}
    except Exception as error:
        raise failure_of(error, record, f"{op}({name!r})") from error


def failure_of(error: Exception, record: Record, op: str) -> Tar2TFError:
    """Return the error to raise for an error that an op met: one that names the record."""
    if isinstance(error, MappingError | MissingField | MissingDependency):
        return error
    return MappingError(f"{op} failed: {describe_error(error)}", **place_of(record))
