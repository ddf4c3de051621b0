"""`Example`: what users subclass. It is light until `load` is called, and light again behind `release`."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ais_tar2tf.features import SHAPE
from ais_tar2tf.schema import Schema
from ais_tar2tf.tfrecorder.helpers.decorator import TfRecordable
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape, schema_of, stored

__all__ = ["Example", "IgnoreExampleException", "serialized"]


def __dir__() -> list[str]:
    return sorted(__all__)


_REMEMBERED = 64  # classes whose fields were worked out


class IgnoreExampleException(Exception):  # the documented name
    """Raised in `load` or `split`: this example is left out, and counted."""


class Example:
    """One example. Override what it needs; keyword arguments that the factory does not know come to all of these.

    >>> from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
    >>> class Labelled(Example):
    ...     @tfrecordable(dtype=Example.Field.TYPE_INT32)
    ...     def label(self):
    ...         return 7
    >>> Labelled.tfrecordable_fields()
    {'label': <FieldType.TYPE_INT32: 'int32'>}
    """

    Field = FieldType

    @classmethod
    def tfrecordable_fields(cls) -> dict[str, FieldType]:
        """Name → type of the declared fields: those of base classes first, then in the order of their declaration."""
        found: dict[str, FieldType] = {}
        for owner in reversed(cls.__mro__):
            for name, member in vars(owner).items():
                if isinstance(member, TfRecordable):
                    found[name] = member.dtype
                else:
                    found.pop(name, None)  # a subclass made something else of it
        return found

    def load(self, **kwargs: Any) -> None:
        """Assign what takes memory; called just before the example is written."""

    def split(self, **kwargs: Any) -> list[Any]:
        """The examples that are written in place of this one, called behind `load`; they are not loaded again."""
        del kwargs
        return [self]

    def release(self) -> None:
        """Let go of what takes memory, called when this example is written: arrays that have a setter become None."""
        for name in _layout(type(self)).released:
            setattr(self, name, None)

    def to_csv_row(self) -> list[Any]:
        """What `examples.csv` says of this example."""
        return []

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Any:
        """An example of a row of a CSV file: a list of strings."""
        raise NotImplementedError("override from_csv_row to read examples from a CSV file")

    def serialize(self) -> bytes:
        """A serialized tf.train.Example of the fields as they are now."""
        return serialized(self)[0]


def serialized(example: Example) -> tuple[bytes, list[Shape]]:
    """The same, and the shapes of the arrays, in the order of their declaration."""
    layout = _layout(type(example))
    record = stored(layout.types, {name: getattr(example, name) for name in layout.types})
    return layout.schema.encode(record), [tuple(record[name].tolist()) for name in layout.shapes]


class _Layout(NamedTuple):
    """What is worked out once for a class: its fields, how they are stored, and which of them `release` clears."""

    types: dict[str, FieldType]
    schema: Schema
    shapes: list[str]  # what the shapes of arrays are stored as
    released: list[str]


@functools.lru_cache(_REMEMBERED)
def _layout(cls: type[Example]) -> _Layout:
    types = cls.tfrecordable_fields()
    arrays = [name for name, kind in types.items() if kind.is_array]
    shapes = [SHAPE.format(name) for name in arrays]
    return _Layout(types, schema_of(types), shapes, [name for name in arrays if getattr(cls, name).fset is not None])
