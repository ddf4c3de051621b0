"""Checks and converts the values that a mapping returns, as `output_types=` and `output_shapes=` say.

If a mapping is traced into a graph, `with_types` and `with_shapes` convert its symbolic values during the tracing. If
a mapping runs as Python code, `PythonOutputs` converts the values that it returns for each record. This module must
not call a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.graph_values import to_number

if TYPE_CHECKING:
    tf: Any
else:
    tf = LazyModule("tensorflow")

__all__ = ["PythonOutputs", "check_types", "flatten_shapes", "require_types_and_shapes", "with_shapes", "with_types"]

_TEXTS = frozenset({bytes, str, np.bytes_, np.str_})


def check_types(output_types: Any) -> None:
    """Raise SchemaError for a type that TensorFlow does not have."""
    for each in [] if output_types is None else tf.nest.flatten(output_types):
        try:
            tf.as_dtype(each)
        except TypeError:
            raise SchemaError(
                f"output_types: there is no type {each!r}; say tf.float32, tf.int64, tf.string …"
            ) from None


def require_types_and_shapes(output_types: Any, output_shapes: Any, what: str, remedy: str) -> tuple[Any, Any]:
    """Return the types and shapes of a mapping that runs as Python; raise SchemaError if the user did not give both.

    Args:
        output_types: The user's `output_types=`.
        output_shapes: The user's `output_shapes=`.
        what: The beginning of the error text, such as "this mapping runs as Python".
        remedy: The end of the error text, which names another solution.
    """
    given = {"output_types": output_types, "output_shapes": output_shapes}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise SchemaError(
            f"{what}, and needs {' and '.join(missing)}: say what it returns, for example "
            f"output_types=(tf.float32, tf.int32), output_shapes=((224, 224, 3), ()){remedy}"
        )
    return output_types, output_shapes


def flatten_shapes(shapes: Any, count: int) -> list[Any]:
    """Return the shapes in a nested structure as a flat list; raise SchemaError unless there are `count` of them.

    A list or tuple that holds only numbers and None is a single shape.
    """

    def is_shape(value: Any) -> bool:
        return isinstance(value, tf.TensorShape) or (
            isinstance(value, list | tuple) and all(n is None or isinstance(n, int) for n in value)
        )

    def walk(value: Any) -> Iterator[Any]:
        if is_shape(value):
            yield tf.TensorShape(value)
        elif isinstance(value, dict):
            for key in sorted(value):
                yield from walk(value[key])
        elif not isinstance(value, list | tuple):
            raise SchemaError(f"output_shapes holds shapes, as (224, 224, 3) or (), not {value!r}")
        else:
            for part in value:
                yield from walk(part)

    found = list(walk(shapes))
    # (None, None) is two unknown shapes for two values, and one shape of rank 2 for a single value.
    if len(found) == 1 < count and shapes == (None,) * count:
        found = [tf.TensorShape(None)] * count
    if len(found) != count:
        raise SchemaError(f"output_shapes has {len(found)} shapes, the mapping returns {count}")
    return found


def with_types(result: Any, output_types: Any) -> Any:
    """Convert the result of a traced mapping to `output_types`: parse text as numbers, and cast numbers.

    If `output_types` is None, convert the values to tensors of their own types.
    """
    if output_types is None:
        return tf.nest.map_structure(
            lambda value: value if tf.is_tensor(value) else tf.convert_to_tensor(value), result
        )

    def convert(value: Any, dtype: Any) -> Any:
        tensor = tf.convert_to_tensor(value)
        if tensor.dtype == tf.string and tf.as_dtype(dtype) != tf.string:
            return to_number(tensor, dtype)
        if tf.as_dtype(dtype) == tf.string and tensor.dtype != tf.string:
            raise SchemaError(
                f"output_types says string, and the mapping returns {tensor.dtype.name}: say tf.{tensor.dtype.name}, "
                "or make text of it by tf.strings.as_string"
            )
        return tf.cast(tensor, dtype) if tensor.dtype != tf.as_dtype(dtype) else tensor

    return tf.nest.map_structure(convert, result, _in_structure_of(result, output_types))


def _in_structure_of(result: Any, types: Any) -> Any:
    """Return `types` in the nested structure of `result`."""
    flat = tf.nest.flatten(types)
    if len(flat) != len(tf.nest.flatten(result)):
        raise SchemaError(f"output_types has {len(flat)} types, the mapping returns {len(tf.nest.flatten(result))}")
    return tf.nest.pack_sequence_as(result, flat)


def with_shapes(result: Any, output_shapes: Any) -> Any:
    """Set the shapes of the result of a traced mapping. The graph checks the shapes of the values when it runs."""
    if output_shapes is None:
        return result
    flat = tf.nest.flatten(result)
    shapes = flatten_shapes(output_shapes, len(flat))
    for value, shape in zip(flat, shapes, strict=True):
        if not value.shape.is_compatible_with(shape):
            raise SchemaError(f"output_shapes says {shape}, and the mapping returns a value of shape {value.shape}")
    return tf.nest.pack_sequence_as(
        result, [tf.ensure_shape(value, shape) for value, shape in zip(flat, shapes, strict=True)]
    )


class PythonOutputs:
    """Converts the values that a Python mapping returns for a record to arrays of the stated types and shapes.

    Args:
        types: The types of the values, as a flat list.
        shapes: The shapes of the values, as a flat list.
    """

    def __init__(self, types: Sequence[Any], shapes: Sequence[Any]) -> None:
        self._types = types
        self._shapes = [None if shape.rank is None else tuple(shape.as_list()) for shape in shapes]

    def converted(self, values: Sequence[Any]) -> list[Any]:
        """Return an array for each value of one record.

        Raises:
            SchemaError: There are more or fewer values than types, or a value has another type or shape.
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


def _fits(found: tuple[int, ...], stated: tuple[int | None, ...]) -> bool:
    """Return whether a shape fits a stated shape, in which None stands for any number."""
    return found == stated or (
        len(found) == len(stated) and all(b is None or a == b for a, b in zip(found, stated, strict=True))
    )


def _array(value: Any, dtype: Any, at: int) -> Any:
    """Convert value number `at` of a record to an array of type `dtype`. For a numeric type, text is parsed."""
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
    """Cast an array to the type `wanted`. A cast to floats may round values. No other cast may change a value."""
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
    """Return value number `at` of a record as bytes or as an array of texts; raise SchemaError if it is no text."""
    if isinstance(value, str):
        return value.encode()
    array = np.asarray(value, dtype=object)
    found = set(map(type, array.flat)) - _TEXTS
    if found:
        raise SchemaError(
            f"value {at} that it returned is {found.pop().__name__}, and output_types says text (tf.string)"
        )
    return array
