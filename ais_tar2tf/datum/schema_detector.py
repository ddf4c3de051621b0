"""Detects the schema of examples: the types and shapes of their features, and which features are sparse.

An example is a dict of features, before it is serialized as a tf.train.Example. The number of values of a *sparse*
feature may differ between examples. This module must not serialize examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.features import SHAPE, as_float32s
from ais_tar2tf.values.features.feature_lists import features_of
from ais_tar2tf.values.file_headers import image_header
from ais_tar2tf.values.schema import Field, Inference, Schema, feature_names, wire_dtype

__all__ = ["SchemaDetector", "encoded_names", "to_stored"]


class SchemaDetector:
    """Collects the types and shapes of features from all examples that are added.

    Args:
        sparse: The names of features that become sparse, even if all examples have equally many values of them.
    """

    def __init__(self, sparse: Sequence[str]) -> None:
        self._sparse = frozenset(sparse)
        self._inference = Inference()
        self._images: dict[str, Field] = {}
        self._image_counts: dict[str, int] = {}  # the number of examples in which a feature is an image
        self._with_integers: set[str] = set()  # the features that are integers in some example
        self._encoded_names: dict[str, set[frozenset[str]]] = {}  # of each feature that is more than a scalar

    def add(self, example: Mapping[str, Any]) -> None:
        """Add the features of one example."""
        others: dict[str, Any] = {}
        for name, value in example.items():
            header = image_header(value) if isinstance(value, bytes) else None
            if header is None:
                others[name] = value
                if _is_integral(value):
                    self._with_integers.add(name)
                if not isinstance(value, bytes | str | int | float):
                    self._encoded_names.setdefault(name, set()).add(encoded_names(name, value))
                continue
            shape = (header.height, header.width, header.channels)
            image = Field(name, header.dtype, shape, "image", format=header.format)
            known = self._images.get(name)
            self._images[name] = image if known is None else known.merge(image)
            self._image_counts[name] = self._image_counts.get(name, 0) + 1
        self._inference.add(others)

    @property
    def mixed(self) -> frozenset[str]:
        """The features that are integers in some examples and floats in others, and must be stored as floats."""
        floats = {field.name for field in self._inference.schema if wire_dtype(field) == "float32"}
        return frozenset(floats & self._with_integers)

    @property
    def misplaced(self) -> dict[str, Field]:
        """The features that must be encoded by their field in the schema, and these fields.

        `features.encode` looks at one value only. So it stores `[[1, 2], [3, 4]]` as a flat list, even if the feature
        is ragged in other examples and the schema says so. Such a value would be lost.
        """
        return {
            field.name: field
            for field in self.schema
            if not all(names.issuperset(feature_names(field)) for names in self._encoded_names.get(field.name, ()))
        }

    @property
    def schema(self) -> Schema:
        """The schema of the examples added so far."""
        records = self._inference.records
        return Schema(tuple(self._fields(records)), records=records)

    def _fields(self, records: int) -> Iterator[Field]:
        for name, image in self._images.items():
            yield replace(image, optional=self._image_counts[name] < records)
        for field in self._inference.schema:
            if field.name in self._images:
                raise SchemaError(f"feature {field.name!r} is an image, and {field.type_text} in other examples")
            # In Datum, text labels stay text. A vocabulary would turn them into numbers.
            yield replace(self._made_sparse(field), vocabulary=None)

    def _made_sparse(self, field: Field) -> Field:
        """Return a field; if `sparse` names the field, return it with dimensions of unknown size."""
        if field.name not in self._sparse or field.is_file or field.ragged or field.sparse:
            return field
        return replace(field, shape=(None,) * max(1, len(field.shape)))


def _is_integral(value: Any) -> bool:
    """Return whether a value is an integer or a bool, or holds only integers and bools, and at least one of them."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_integral, value))
    if hasattr(value, "nested_row_lengths"):
        value = value.flat_values.numpy()
    if isinstance(value, np.ndarray):
        return value.size > 0 and value.dtype.kind in "biu"
    return isinstance(value, int | np.integer | np.bool_)


def encoded_names(name: str, value: Any) -> frozenset[str]:
    """Return the names of the features that store a value which `to_stored` has returned."""
    has_shape = isinstance(value, np.ndarray) and value.ndim > 1
    return frozenset({*(SHAPE.format(name),) * has_shape, *(feature for feature, _ in features_of(name, value))})


def to_stored(example: Mapping[str, Any], floats: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return an example with its values in the form that is stored.

    A dense tensor becomes an array. An array of uint64 becomes int64, and an array of float64 becomes float32. For
    an array of several dimensions, another feature is added, which holds the shape. A ragged tensor stays ragged, and
    its numbers are converted in the same way. Nested lists of different lengths stay lists.

    Args:
        example: The features. A feature whose value is None is left out.
        floats: The names of features that become float32, even if their values are integers.
    """
    stored: dict[str, Any] = {}
    for name, value in example.items():
        if value is None:
            continue
        if hasattr(value, "nested_row_lengths"):  # a tf.RaggedTensor
            stored[name] = value.with_flat_values(_array_of(name, value.flat_values.numpy(), floats))
            continue
        plain = value.numpy() if hasattr(value, "numpy") and not hasattr(value, "dense_shape") else value
        if name in floats and _is_ragged_list(name, plain):
            plain = _as_floats(plain)
        elif name in floats or isinstance(plain, np.ndarray | np.generic):
            plain = _array_of(name, plain, floats)
            if plain.ndim > 1:
                stored[SHAPE.format(name)] = np.asarray(plain.shape, np.int64)
        stored[name] = plain
    return stored


def _is_ragged_list(name: str, value: Any) -> bool:
    """Return whether a value is nested lists that `features.encode` stores as a ragged value."""
    return isinstance(value, list | tuple) and name not in encoded_names(name, value)


def _as_floats(value: Any) -> Any:
    """Return nested lists with all of their numbers as floats."""
    if isinstance(value, list | tuple):
        return [_as_floats(each) for each in value]
    return np.asarray(value, np.float64).tolist()


def _array_of(name: str, value: Any, floats: frozenset[str]) -> Any:
    """Return a value as an array: as float32 if `floats` names its feature, uint64 as int64, float64 as float32.

    Raises:
        SchemaError: A number is too large for the new type.
    """
    array = np.asarray(value, np.float64 if name in floats else None)
    if array.dtype == np.uint64:
        if array.size and int(array.max()) >= 2**63:
            raise SchemaError(f"feature {name!r}: {int(array.max())} does not fit into an int64")
        return array.astype(np.int64)
    return as_float32s(name, array) if array.dtype == np.float64 else array
