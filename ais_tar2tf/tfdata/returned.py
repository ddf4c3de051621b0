"""What a mapping in Python returned, checked against the types and shapes that it was said to return. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tfdata.graphs import tf

__all__ = ["Returned"]

_TEXTS = frozenset({bytes, str, np.bytes_, np.str_})


class Returned:
    """Makes arrays of what a mapping returned for a record, of the types and shapes that its user said.

    Args:
        types: TensorFlow's types, flattened.
        shapes: As many shapes.
    """

    def __init__(self, types: Sequence[Any], shapes: Sequence[Any]) -> None:
        self._types = types
        self._shapes = [_dimensions(shape) for shape in shapes]

    def converted(self, values: Sequence[Any]) -> list[Any]:
        """Return an array for each value of one record.

        Raises:
            SchemaError: There are more or fewer values, or one is of another type or shape.
        """
        if len(values) != len(self._types):
            raise SchemaError(
                f"it returned {len(values)} value{'s' * (len(values) != 1)}, and output_types has {len(self._types)}"
            )
        arrays = [_array(value, dtype, at) for at, (value, dtype) in enumerate(zip(values, self._types, strict=True))]
        for at, (array, shape) in enumerate(zip(arrays, self._shapes, strict=True)):
            if shape is not None and not _fits(np.shape(array), shape):
                raise SchemaError(
                    f"value {at} that it returned has the shape {np.shape(array)}, and output_shapes says {shape}"
                )
        return arrays


def _dimensions(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _fits(found: tuple[int, ...], said: tuple[int | None, ...]) -> bool:
    return found == said or (
        len(found) == len(said) and all(b is None or a == b for a, b in zip(found, said, strict=True))
    )


def _array(value: Any, dtype: Any, at: int) -> Any:
    """Return a value as an array of a type; text is read as a number."""
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if dtype == tf.string:
        return _text(value, at)
    try:
        if isinstance(value, bytes | str):
            value = float(value) if dtype.is_floating else int(value)
        array = np.asarray(value)
        wanted = np.dtype(dtype.as_numpy_dtype)
        return array if array.dtype == wanted else _cast(array, wanted, is_floating=dtype.is_floating)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise SchemaError(
            f"value {at} that it returned is no {dtype.name}, as output_types says: {str(error).splitlines()[0]}"
        ) from error


def _cast(array: Any, wanted: Any, *, is_floating: bool) -> Any:
    """Return an array in another type. Numbers may lose digits to a type of floats, and nothing to any other."""
    if is_floating and array.dtype.kind in "iufb":
        with np.errstate(over="raise"):
            return array.astype(wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(wanted)
    if array.dtype.kind in "US" or np.can_cast(array.dtype, wanted, "safe"):
        return cast
    changed = np.asarray(cast != array)
    if changed.any():
        raise ValueError(f"{array[changed].flat[0]!s} would become {cast[changed].flat[0]!s}; cast it in the mapping")
    return cast


def _text(value: Any, at: int) -> Any:
    if isinstance(value, str):
        return value.encode()
    array = np.asarray(value, dtype=object)
    found = set(map(type, array.flat)) - _TEXTS
    if found:
        raise SchemaError(
            f"value {at} that it returned is {found.pop().__name__}, and output_types says text (tf.string)"
        )
    return array
