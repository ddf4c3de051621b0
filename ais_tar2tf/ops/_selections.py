"""From a record to a value of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ais_tar2tf.errors import OptionTypeError, SchemaError
from ais_tar2tf.mapping import is_tensor
from ais_tar2tf.nearest import checked_class
from ais_tar2tf.ops._base import Op, Selection, failure_of, field_of, type_name
from ais_tar2tf.records import Record
from ais_tar2tf.values import json_value

__all__ = ["Select", "SelectDict", "SelectJSON", "SelectList", "selection_of", "union"]


@checked_class
@dataclass(frozen=True)
class Select(Selection):
    """One field's value; a string means the same."""

    field: str

    def __call__(self, record: Record) -> Any:
        return field_of(record, self.field)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Select", "field": self.field}


@checked_class
@dataclass(frozen=True)
class SelectJSON(Selection):
    """A value out of a JSON field, by its key or by a path of keys and places.

    In a graph its type has to be known: `SelectJSON("json", ["boxes", 0, "area"], dtype="float32")`, and `shape` if
    it is a list; else the whole mapping runs as Python, with `output_types`.

    >>> SelectJSON("json", ["boxes", 0])({"json": b'{"boxes": [3, 4]}'})
    3
    """

    field: str
    path: Any  # a key, a place, or a list of these
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
            return self._typed(self._taken(value))
        except Exception as error:
            raise failure_of(error, record, f"SelectJSON({self.field!r}, {self._said})") from error

    @property
    def _said(self) -> str:
        return "".join(f"[{part!r}]" for part in self.path)

    def _taken(self, value: Any) -> Any:
        value = json_value(value) if isinstance(value, bytes | str) else value
        for part in self.path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                raise SchemaError(f"there is no {self._said} in it") from None
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

        def take(data: bytes) -> Any:
            taken = np.asarray(self._typed(self._taken(data)), numpy_type)
            return np.vectorize(_encoded, otypes=[object])(taken) if dtype == tf.string and taken.size else taken

        return tf.ensure_shape(tf.numpy_function(take, [tensor], dtype, stateful=False), self.shape)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"op": "SelectJSON", "field": self.field, "path": list(self.path)}
        if self.dtype is not None:
            said |= {"dtype": self.dtype, "shape": list(self.shape)}
        return said


def _encoded(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else text


def selection_of(given: Any) -> Selection:
    if isinstance(given, str):
        return Select(given)
    if isinstance(given, Selection):
        return given
    if isinstance(given, Mapping):
        return SelectDict(given)
    if isinstance(given, Sequence):
        return SelectList(tuple(given))
    raise SchemaError(f"{given!r} selects nothing; a field's name or a Select… is expected")


def union(parts: Sequence[Op]) -> frozenset[str] | None:
    read = [part.reads for part in parts]
    known = [each for each in read if each is not None]
    return frozenset().union(*known) if len(known) == len(read) else None


@checked_class
@dataclass(frozen=True)
class SelectList(Selection):
    """Several values as a list; in a graph as a tuple, for TensorFlow takes a list for one tensor."""

    items: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(selection_of(each) for each in self.items))

    def __call__(self, record: Record) -> Any:
        values = [item(record) for item in self.items]
        return tuple(values) if any(is_tensor(each) for each in record.values()) else values

    @property
    def reads(self) -> frozenset[str] | None:
        return union(self.items)

    def to_json(self) -> dict[str, Any]:
        return {"op": "SelectList", "items": [item.to_json() for item in self.items]}


@checked_class
@dataclass(frozen=True)
class SelectDict(Selection):
    """Several values by names of yours: `SelectDict({"image": "jpg", "id": SelectJSON("json", "id")})`."""

    items: Any

    def __post_init__(self) -> None:
        if not isinstance(self.items, Mapping | tuple):  # a tuple of pairs is what this becomes
            raise OptionTypeError(
                f"SelectDict takes what to select by name, as {{'image': 'jpg'}}, not {self.items!r}"
            )
        given = dict(self.items)
        object.__setattr__(self, "items", tuple((str(name), selection_of(each)) for name, each in given.items()))

    def __call__(self, record: Record) -> dict[str, Any]:
        return {name: item(record) for name, item in self.items}

    @property
    def reads(self) -> frozenset[str] | None:
        return union([item for _, item in self.items])

    def to_json(self) -> dict[str, Any]:
        return {"op": "SelectDict", "items": {name: item.to_json() for name, item in self.items}}
