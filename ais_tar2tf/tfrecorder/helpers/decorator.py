"""The decorator `@tfrecordable(dtype=…)`. It makes a method a property whose value is a field in record files.

This module must not serialize values: `marshaller.py` does so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ais_tar2tf.errors import OptionTypeError
from ais_tar2tf.tfrecorder.helpers.fields import FieldType

__all__ = ["TfRecordable", "tfrecordable"]


def __dir__() -> list[str]:
    return sorted(__all__)


class TfRecordable(property):
    """A property whose value is written into record files, as a field of the type `dtype`."""

    def __init__(
        self,
        fget: Callable[[Any], Any] | None = None,
        fset: Callable[[Any, Any], None] | None = None,
        fdel: Callable[[Any], None] | None = None,
        doc: str | None = None,
        *,
        dtype: FieldType,
    ) -> None:
        super().__init__(fget, fset, fdel, doc)
        self.dtype: FieldType = dtype

    def getter(self, fget: Callable[[Any], Any], /) -> TfRecordable:
        return TfRecordable(fget, self.fset, self.fdel, dtype=self.dtype)

    def setter(self, fset: Callable[[Any, Any], None], /) -> TfRecordable:
        return TfRecordable(self.fget, fset, self.fdel, dtype=self.dtype)

    def deleter(self, fdel: Callable[[Any], None], /) -> TfRecordable:
        return TfRecordable(self.fget, self.fset, fdel, dtype=self.dtype)


def tfrecordable(dtype: FieldType) -> Callable[[Callable[[Any], Any]], TfRecordable]:
    """Return a decorator that makes a method a property whose value is written into record files.

    The fields of a dataset have the order in which the properties are declared.

    Args:
        dtype: The type of the field, one of `Example.Field.TYPE_…`.

    Returns:
        A decorator of methods, to be used like `@property`.

    Raises:
        OptionTypeError: `dtype` is not a `FieldType`.

    Example:
        class Labelled(Example):
            @tfrecordable(dtype=Example.Field.TYPE_INT32)
            def label(self):
                return 7
    """
    if not isinstance(dtype, FieldType):  # pyright: ignore[reportUnnecessaryIsInstance]  # users may not check types
        raise OptionTypeError(f"dtype is one of Example.Field.{', '.join(FieldType.__members__)}, not {dtype!r}")

    def decorate(fget: Callable[[Any], Any]) -> TfRecordable:
        return TfRecordable(fget, dtype=dtype)

    return decorate
