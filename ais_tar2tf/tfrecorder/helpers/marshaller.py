"""The base class of examples. An example uses much memory only from the call of `load` to the call of `release`."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ais_tar2tf.tfrecorder.helpers.decorator import TfRecordable
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape, schema_of, stored_values
from ais_tar2tf.values.features import SHAPE
from ais_tar2tf.values.schema import Schema

__all__ = ["Example", "IgnoreExampleException", "serialized"]


def __dir__() -> list[str]:
    return sorted(__all__)


_MAX_CACHED = 64  # classes


class IgnoreExampleException(Exception):  # the documented name
    """Raised in `load` or `split` to leave an example out. Such examples are counted."""


class Example:
    """The base class of examples. A subclass declares fields with `@tfrecordable`, and overrides `from_csv_row`.

    The function of `tfrecorder.factory` that writes examples passes on the keyword arguments that it does not use
    itself. These extra arguments go to `from_csv_row`, `load` and `split`.

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
        """Return the types of the declared fields by name.

        Fields of base classes come first; the fields of a class are in the order of declaration.
        """
        fields: dict[str, FieldType] = {}
        for owner in reversed(cls.__mro__):
            for name, member in vars(owner).items():
                if isinstance(member, TfRecordable):
                    fields[name] = member.dtype
                else:
                    fields.pop(name, None)  # a subclass replaced the field
        return fields

    def load(self, **kwargs: Any) -> None:
        """Assign the attributes that need much memory. This is called just before the example is written.

        Args:
            **kwargs: The extra arguments.

        Raises:
            IgnoreExampleException: The example is to be left out.
        """

    def split(self, **kwargs: Any) -> list[Any]:
        """Return the examples to write instead of this example. By default, it is written itself.

        This is called after `load`, which is not called for the returned examples.

        Args:
            **kwargs: The extra arguments.

        Raises:
            IgnoreExampleException: The example is to be left out.
        """
        del kwargs
        return [self]

    def release(self) -> None:
        """Free memory after this example was written. By default, set each array field that has a setter to None."""
        for name in _layout(type(self)).released:
            setattr(self, name, None)

    def to_csv_row(self) -> list[Any]:
        """Return the row of this example in `examples.csv`."""
        return []

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Any:
        """Return an example for a row of a CSV file.

        Args:
            row: The cells, as strings.
            **kwargs: The extra arguments.
        """
        raise NotImplementedError("override from_csv_row to read examples from a CSV file")

    def serialize(self) -> bytes:
        """Return the current values of the fields as a serialized tf.train.Example."""
        return serialized(self)[0]


def serialized(example: Example) -> tuple[bytes, list[Shape]]:
    """Serialize an example; return the tf.train.Example, and the shapes of the arrays in the order of declaration."""
    layout = _layout(type(example))
    record = stored_values(layout.types, {name: getattr(example, name) for name in layout.types})
    return layout.schema.encode(record), [tuple(record[name].tolist()) for name in layout.shapes]


class _Layout(NamedTuple):
    """How the examples of a class are stored."""

    types: dict[str, FieldType]  # by the names of the fields
    schema: Schema
    shapes: list[str]  # the names of the features that hold the shapes of arrays
    released: list[str]  # the names of the fields that `release` sets to None


@functools.lru_cache(_MAX_CACHED)
def _layout(cls: type[Example]) -> _Layout:
    types = cls.tfrecordable_fields()
    arrays = [name for name, kind in types.items() if kind.is_array]
    shapes = [SHAPE.format(name) for name in arrays]
    return _Layout(types, schema_of(types), shapes, [name for name in arrays if getattr(cls, name).fset is not None])
