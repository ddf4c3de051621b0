"""The byte budget for the values of one HDF5 file.

The size of an element is known before the element is read, unless the element has a variable length (text or a
list). Many elements of variable length may refer to the same content in the file. So the elements of a small file can
take gigabytes of memory. Therefore, elements of variable length are read in parts. A part has so few elements that it
stays within the limit even if each element is as large as the file. This module must not decode values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError

__all__ = ["Budget"]

_OBJECT_BYTES = 128  # memory of a Python object without its content; a numpy array takes 112 bytes


class Budget:
    """Counts the bytes of the values that are read from one file, and refuses more than `limit` bytes.

    Args:
        limit: The largest number of bytes, `Limits.member_bytes`.
        file_bytes: The size of the file. No element of variable length is larger than the file.
    """

    def __init__(self, limit: int, file_bytes: int) -> None:
        self._limit = limit
        self._file_bytes = max(1, file_bytes)
        self._used = 0

    def check(self, datasets: dict[str, Any]) -> None:
        """Refuse HDF5 datasets whose headers state too many bytes, in total or in one HDF5 chunk.

        An HDF5 chunk is a group of elements that is stored as a whole. The HDF5 library holds a whole chunk in
        memory, even if it reads only a part of the chunk.
        """
        for dataset in datasets.values():
            self._spend(_minimum_bytes(dataset.shape, dataset.dtype))
            if dataset.chunks is not None and _minimum_bytes(dataset.chunks, dataset.dtype) > self._limit:
                raise self._error(_minimum_bytes(dataset.chunks, dataset.dtype))

    def read_objects(self, dataset: Any) -> Any:
        """Return all values of an HDF5 dataset whose elements have a variable length, and become Python objects."""
        whole = np.empty(dataset.shape, dataset.dtype)
        for part in _parts(dataset.shape, self._part_elements(dataset.dtype)):
            values = dataset[part]
            self._spend(_content_bytes(values))
            whole[part] = values
        return whole

    def read_attribute(self, holder: Any, name: str) -> Any:
        """Return the value of one attribute of a group or dataset."""
        identifier = holder.attrs.get_id(name)
        shape, dtype = identifier.shape, identifier.dtype
        elements = math.prod(shape)
        self._spend(_minimum_bytes(shape, dtype))
        if dtype.hasobject and elements > self._part_elements(dtype):
            raise self._error(elements * self._file_bytes)
        value = holder.attrs[name]
        if dtype.hasobject:
            self._spend(_content_bytes(value))
        return value

    def _part_elements(self, dtype: Any) -> int:
        """Return how many elements of variable length may be read at once."""
        return max(1, self._limit // (self._file_bytes * _object_count(dtype)))

    def _spend(self, size: int) -> None:
        self._used += size
        if self._used > self._limit:
            raise self._error(self._used)

    def _error(self, size: int) -> SchemaError:
        return SchemaError(f"variables of {size:,} bytes pass the limit of {self._limit:,}, Limits.member_bytes")


def _object_count(dtype: Any) -> int:
    """Return how many Python objects one element of a type holds."""
    if dtype.subdtype is not None:
        return math.prod(dtype.subdtype[1]) * _object_count(dtype.subdtype[0])
    if dtype.names is not None:
        return sum(_object_count(dtype.fields[name][0]) for name in dtype.names)
    return int(dtype.hasobject)


def _minimum_bytes(shape: Any, dtype: Any) -> int:
    """Return the size of an array in memory, without the content of elements of variable length."""
    return math.prod(shape) * (dtype.itemsize + _OBJECT_BYTES * _object_count(dtype))


def _content_bytes(values: Any) -> int:
    """Return the size of all text and lists among the values: bytes, but for a `str`, characters."""
    if isinstance(values, np.void) or (isinstance(values, np.ndarray) and values.dtype.names is not None):
        return sum(_content_bytes(values[name]) for name in values.dtype.names or ())
    if isinstance(values, np.ndarray):
        return sum(map(_content_bytes, values.ravel())) if values.dtype.hasobject else values.nbytes
    return len(values) if isinstance(values, str | bytes) else 0


def _parts(shape: tuple[int, ...], part_elements: int) -> Iterator[tuple[Any, ...]]:
    """Yield the indices of parts that together cover an array. A part has at most `part_elements` elements."""
    if math.prod(shape) <= part_elements or not shape:
        yield (...,)
        return
    row = math.prod(shape[1:])
    if row <= part_elements:
        step = part_elements // max(1, row)
        yield from ((slice(begin, begin + step), ...) for begin in range(0, shape[0], step))
        return
    for at in range(shape[0]):
        yield from ((at, *part) for part in _parts(shape[1:], part_elements))
