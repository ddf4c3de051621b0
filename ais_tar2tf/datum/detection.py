"""What the features of all examples are: type, shape, sparse or dense. Nobody has to say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.features import SHAPE, as_float32s
from ais_tar2tf.headers import image_header
from ais_tar2tf.schema import Field, Inference, Schema, wire_dtype

__all__ = ["Detection", "with_shapes"]


class Detection:
    """Examples in, their schema out. Features in `sparse` are sparse whatever is seen of them."""

    def __init__(self, sparse: Sequence[str]) -> None:
        self._sparse = frozenset(sparse)
        self._inference = Inference()
        self._images: dict[str, Field] = {}
        self._with_image: dict[str, int] = {}
        self._with_integers: set[str] = set()

    def add(self, example: Mapping[str, Any]) -> None:
        others: dict[str, Any] = {}
        for name, value in example.items():
            header = image_header(value) if isinstance(value, bytes) else None
            if header is None:
                others[name] = value
                if _is_integral(value):
                    self._with_integers.add(name)
                continue
            shape = (header.height, header.width, header.channels)
            seen = Field(name, header.dtype, shape, "image", format=header.format)
            known = self._images.get(name)
            self._images[name] = seen if known is None else known.merge(seen)
            self._with_image[name] = self._with_image.get(name, 0) + 1
        self._inference.add(others)

    @property
    def mixed(self) -> frozenset[str]:
        """Features that are whole numbers in some examples and not in others: all of them are to be floats."""
        floats = {field.name for field in self._inference.schema if wire_dtype(field) == "float32"}
        return frozenset(floats & self._with_integers)

    @property
    def schema(self) -> Schema:
        records = self._inference.records
        return Schema(tuple(self._fields(records)), records=records)

    def _fields(self, records: int) -> Iterator[Field]:
        for name, image in self._images.items():
            yield replace(image, optional=self._with_image[name] < records)
        for field in self._inference.schema:
            if field.name in self._images:
                raise SchemaError(f"feature {field.name!r} is an image, and {field.type_text} in other examples")
            # A vocabulary would be the core's own: labels of text stay text here.
            yield replace(self._as_asked(field), vocabulary=None)

    def _as_asked(self, field: Field) -> Field:
        if field.name not in self._sparse or field.is_file or field.ragged or field.sparse:
            return field
        return replace(field, shape=(None,) * max(1, len(field.shape)))


def _is_integral(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_integral, value))
    if isinstance(value, np.ndarray):
        return value.size > 0 and value.dtype.kind in "biu"
    return isinstance(value, int | np.integer | np.bool_)


def with_shapes(example: Mapping[str, Any], floats: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The example as it is stored: in the two widths of numbers that a record has, arrays with their sizes."""
    stored: dict[str, Any] = {}
    for name, value in example.items():
        if value is None:
            continue
        plain = value.numpy() if hasattr(value, "numpy") and not hasattr(value, "dense_shape") else value
        if name in floats:
            plain = as_float32s(name, np.asarray(plain, np.float64))
        if isinstance(plain, np.ndarray | np.generic):
            plain = _narrowed(name, np.asarray(plain))
            if plain.ndim > 1:
                stored[SHAPE.format(name)] = np.asarray(plain.shape, np.int64)
        stored[name] = plain
    return stored


def _narrowed(name: str, array: Any) -> Any:
    if array.dtype == np.uint64:
        if array.size and int(array.max()) >= 2**63:
            raise SchemaError(f"feature {name!r}: {int(array.max())} does not fit into an int64")
        return array.astype(np.int64)
    return as_float32s(name, array) if array.dtype == np.float64 else array
