"""Values of different shapes, which make no batch: TensorFlow's text says shapes at most, and this says whose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError, Tar2TFError, ask_for_originals
from ais_tar2tf.tfdata.graphs import tf

__all__ = ["Unequal", "find_unequal"]

_BY_COMPONENT = re.compile(
    r"Cannot batch tensors with different shapes in component (\d+)\. "
    r"First element had shape \[([\d,]*)\] and element \d+ had shape \[([\d,]*)\]"
)
_BY_SHAPES = re.compile(r"Cannot add tensor to the batch: [^\[]*\[tensor\]: \[([\d,]*)\], \[batch\]: \[([\d,]*)\]")


class Unequal:
    """Names the field whose values did not make a batch, by what TensorFlow says of their shapes.

    Args:
        batched: The names and shapes of all values of a batch, without the batch's own dimension.
    """

    def __init__(self, batched: list[tuple[str, Any]]) -> None:
        self._batched = batched

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the error that TensorFlow's text stands for."""
        found = _BY_COMPONENT.search(text)
        if found is not None:
            named = self._batched[int(found[1]) :][:1]
            return _error(named, found[2], found[3])
        found = _BY_SHAPES.search(text)
        return None if found is None else _error(self._batched, found[2], found[1])


def find_unequal(batched: Any) -> Unequal | None:
    """Let errors name the field when a batch fails; None for values of fixed shapes, whose batches cannot fail.

    Args:
        batched: The element_spec of a dataset of batches. Who calls this holds the result as long as the dataset.
    """
    named = list(_named(batched, ()))
    if all(shape.is_fully_defined() for _, shape in named):
        return None
    found = Unequal(named)
    ask_for_originals(found)
    return found


def _named(spec: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a structure in tf.nest's order, which is the one that TensorFlow counts them in."""
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


def _error(named: list[tuple[str, Any]], first: str, other: str) -> Tar2TFError | None:
    shapes = [tf.TensorShape([int(each) for each in text.split(",") if each]) for text in (first, other)]
    unequal = [
        name
        for name, shape in named
        if not shape.is_fully_defined() and all(shape.is_compatible_with(each) for each in shapes)
    ]
    if not unequal:
        return None
    return SchemaError(
        f"the values of {' or '.join(unequal)} have different shapes, [{first}] and [{other}], and make no batch: "
        "give them one shape in a mapping, or leave out batch= and say dataset.padded_batch(…) or "
        "dataset.ragged_batch(…)"
    )
