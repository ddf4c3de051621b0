"""Errors for batches whose values have different shapes.

TensorFlow's error states two shapes, and sometimes the number of a component (a value of the element), but no field.
This module finds the field whose values may have both shapes. It must not catch errors: `errors.original` passes the
text of TensorFlow's error to `BatchShapeErrors.original_of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError, Tar2TFError, ask_for_originals
from ais_tar2tf.tfdata.tf import tf

__all__ = ["BatchShapeErrors", "explain_batch_errors"]

_BY_COMPONENT = re.compile(
    r"Cannot batch tensors with different shapes in component (\d+)\. "
    r"First element had shape \[([\d,]*)\] and element \d+ had shape \[([\d,]*)\]"
)
_BY_SHAPES = re.compile(r"Cannot add tensor to the batch: [^\[]*\[tensor\]: \[([\d,]*)\], \[batch\]: \[([\d,]*)\]")


class BatchShapeErrors:
    """Finds the field whose values have different shapes, from the text of TensorFlow's error.

    Args:
        values: For each value of an element, in TensorFlow's order: the name that errors show, and the value's shape
            before batching.
    """

    def __init__(self, values: list[tuple[str, Any]]) -> None:
        self._values = values

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the error that names the field; None if `text` is about something else, or fits no field."""
        found = _BY_COMPONENT.search(text)
        if found is not None:
            return _error(self._values[int(found[1]) :][:1], found[2], found[3])
        found = _BY_SHAPES.search(text)
        return None if found is None else _error(self._values, found[2], found[1])


def explain_batch_errors(batched: Any) -> BatchShapeErrors | None:
    """Let `errors.original` name the field in errors of batches, as long as the returned object exists.

    Args:
        batched: The element_spec of a dataset of batches.

    Returns:
        The object that explains the errors; None if all shapes are fixed, because then all batches succeed.
    """
    values = list(_named(batched, ()))
    if all(shape.is_fully_defined() for _, shape in values):
        return None
    errors = BatchShapeErrors(values)
    ask_for_originals(errors)
    return errors


def _named(spec: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each value, as errors show it, and its shape before batching.

    The order is that of tf.nest, in which TensorFlow numbers components. A ragged or sparse value gets a fixed shape,
    because TensorFlow makes batches of such values whatever their sizes are.
    """
    if isinstance(spec, Mapping):
        for name in sorted(spec):
            yield from _named(spec[name], (*path, str(name)))
    elif isinstance(spec, list | tuple):
        for at, each in enumerate(spec):
            yield from _named(each, (*path, str(at)))
    else:
        name = "/".join(path)
        shown = f"value {name} of the element" if name.isdigit() else f"field {name!r}" if name else "the element"
        is_dense = isinstance(spec, tf.TensorSpec)
        yield shown, spec.shape[1:] if is_dense else tf.TensorShape(())


def _error(values: list[tuple[str, Any]], first: str, other: str) -> Tar2TFError | None:
    """Return the error that names all values that may have both shapes; None if there are no such values."""
    shapes = [tf.TensorShape([int(each) for each in text.split(",") if each]) for text in (first, other)]
    unequal = [
        name
        for name, shape in values
        if not shape.is_fully_defined() and all(shape.is_compatible_with(each) for each in shapes)
    ]
    if not unequal:
        return None
    return SchemaError(
        f"the values of {' or '.join(unequal)} have different shapes, [{first}] and [{other}], and make no batch: "
        "give them one shape in a mapping, or leave out batch= and say dataset.padded_batch(…) or "
        "dataset.ragged_batch(…)"
    )
