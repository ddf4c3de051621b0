"""Selections: ops (steps of a pipeline) that return a value of a record. They must not change the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.base.nearest import checked_class
from ais_tar2tf.errors import OptionTypeError, SchemaError
from ais_tar2tf.ops.base import Op, SelectionOp, failure_of, field_of, type_name
from ais_tar2tf.records import Record
from ais_tar2tf.values.graph_values import is_tensor

__all__ = ["Select", "SelectDict", "SelectJSON", "SelectList", "fields_read", "selection_of"]


@checked_class
@dataclass(frozen=True)
class Select(SelectionOp):
    """A selection of one field. Where a selection is expected, users may write `"jpg"` for `Select("jpg")`.

    Args:
        field: The field.
    """

    field: str

    def __call__(self, record: Record) -> Any:
        return field_of(record, self.field)


@checked_class
@dataclass(frozen=True)
class SelectJSON(SelectionOp):
    """A selection of a value in a JSON field.

    Args:
        field: The field.
        path: The way to the value: a key of a dict, a position in a list, or a list of keys and positions.
        dtype: The type of the value, which a graph needs. If `dtype` is None, a mapping with this selection runs as
            Python, and the dataset needs its option `output_types`.
        shape: The shape of the value in a graph if the value is a list; () if the value is not a list.

    Raises:
        OptionTypeError: `path` has a part that is neither a key nor a position.
        SchemaError: `dtype` is not a type.

    Example:
        >>> SelectJSON("json", ["boxes", 0])({"json": b'{"boxes": [3, 4]}'})
        3
    """

    field: str
    path: Any
    dtype: Any = None
    shape: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        path: tuple[Any, ...] = tuple(self.path) if isinstance(self.path, list | tuple) else (self.path,)
        if not all(isinstance(part, str | int) for part in path):
            raise OptionTypeError(
                f"SelectJSON.path is a key, a place, or a list of these, as ['boxes', 0], not {self.path!r}"
            )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", type_name(self.dtype))

    def __call__(self, record: Record) -> Any:
        value = field_of(record, self.field)
        if is_tensor(value):
            return self._in_graph(value)
        try:
            return self._typed(self._value_in(value))
        except Exception as error:
            raise failure_of(error, record, f"SelectJSON({self.field!r}, {self._path_text})") from error

    @property
    def _path_text(self) -> str:
        return "".join(f"[{part!r}]" for part in self.path)

    def _value_in(self, value: Any) -> Any:
        value = json_value(value) if isinstance(value, bytes | str) else value
        for part in self.path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                raise SchemaError(f"there is no {self._path_text} in it") from None
        return value

    def _typed(self, value: Any) -> Any:
        if self.dtype is None:
            return value
        if self.dtype == "string":
            return value if isinstance(value, str | list) else str(value)
        array = np.asarray(value, np.dtype(self.dtype))
        return array[()]

    def _in_graph(self, tensor: Any) -> Any:
        if self.dtype is None:
            raise OptionTypeError("SelectJSON needs its dtype in a graph")
        import tensorflow as tf

        dtype = tf.as_dtype(self.dtype)
        numpy_type = object if dtype == tf.string else dtype.as_numpy_dtype

        def select(data: bytes) -> Any:
            value = np.asarray(self._typed(self._value_in(data)), numpy_type)
            return np.vectorize(_encoded, otypes=[object])(value) if dtype == tf.string and value.size else value

        return tf.ensure_shape(tf.numpy_function(select, [tensor], dtype, stateful=False), self.shape)

    def to_json(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"op": "SelectJSON", "field": self.field, "path": list(self.path)}
        if self.dtype is not None:
            settings |= {"dtype": self.dtype, "shape": list(self.shape)}
        return settings


def _encoded(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else text


def selection_of(given: Any) -> SelectionOp:
    """Return the selection that a user gives as the name of a field, a selection, or a dict or a list of these.

    Raises:
        SchemaError: `given` is none of these.
    """
    if isinstance(given, str):
        return Select(given)
    if isinstance(given, SelectionOp):
        return given
    if isinstance(given, Mapping):
        return SelectDict(given)
    if isinstance(given, Sequence):
        return SelectList(tuple(given))
    raise SchemaError(f"{given!r} selects nothing; a field's name or a Select… is expected")


def _is_pairs(items: Any) -> bool:
    return isinstance(items, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in items)


def fields_read(ops: Sequence[Op]) -> frozenset[str] | None:
    """Return all fields that the ops read; None if it is unknown which fields one of the ops reads."""
    reads = [op.reads for op in ops]
    known = [fields for fields in reads if fields is not None]
    return frozenset().union(*known) if len(known) == len(reads) else None


@checked_class
@dataclass(frozen=True)
class SelectList(SelectionOp):
    """A selection of several values as a list.

    In a graph, the values come as a tuple, because TensorFlow would make one tensor of a list.

    Args:
        items: The selections, or names of fields.
    """

    items: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(selection_of(each) for each in self.items))

    def __call__(self, record: Record) -> Any:
        values = [item(record) for item in self.items]
        return tuple(values) if any(is_tensor(each) for each in record.values()) else values

    @property
    def reads(self) -> frozenset[str] | None:
        return fields_read(self.items)

    def to_json(self) -> dict[str, Any]:
        return {"op": "SelectList", "items": [item.to_json() for item in self.items]}


@checked_class
@dataclass(frozen=True)
class SelectDict(SelectionOp):
    """A selection of several values as a dict: `SelectDict({"image": "jpg", "id": SelectJSON("json", "id")})`.

    Args:
        items: A dict of selections or names of fields. In the result, each selected value has the key that its
            selection has in `items`.

    Raises:
        OptionTypeError: `items` is neither a dict nor a tuple of pairs.
    """

    items: Any

    def __post_init__(self) -> None:
        # `dataclasses.replace` passes `self.items`, which is a tuple of pairs (see below).
        if not isinstance(self.items, Mapping) and not _is_pairs(self.items):
            raise OptionTypeError(
                f"SelectDict takes what to select by name, as {{'image': 'jpg'}}, not {self.items!r}"
            )
        given = dict(self.items)
        object.__setattr__(self, "items", tuple((str(name), selection_of(each)) for name, each in given.items()))

    def __call__(self, record: Record) -> dict[str, Any]:
        return {name: item(record) for name, item in self.items}

    @property
    def reads(self) -> frozenset[str] | None:
        return fields_read([item for _, item in self.items])

    def to_json(self) -> dict[str, Any]:
        return {"op": "SelectDict", "items": {name: item.to_json() for name, item in self.items}}
