"""How many bytes a file's variables and attributes may become, also those whose size only reading them tells.

An element of variable length (text, or a list) lies in the file once, and any number of elements may refer to it: a
small file can hold references to gigabytes. So such elements are read a few at a time, at most as many as could have
the limit's size if each were as large as the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError

__all__ = ["Budget"]

_OBJECT_BYTES = 128  # of a Python object, beside its content: numpy's arrays take 112


class Budget:
    """Counts the bytes that come out of one file, and refuses more than `limit`."""

    def __init__(self, limit: int, file_bytes: int) -> None:
        self._limit = limit
        self._file_bytes = max(1, file_bytes)
        self._used = 0

    def check(self, datasets: dict[str, Any]) -> None:
        """Refuse what states too many bytes: all variables together, or one chunk, which HDF5 holds whole."""
        for dataset in datasets.values():
            self._take(_least_bytes(dataset.shape, dataset.dtype))
            if dataset.chunks is not None and _least_bytes(dataset.chunks, dataset.dtype) > self._limit:
                raise self._error(_least_bytes(dataset.chunks, dataset.dtype))

    def values(self, dataset: Any) -> Any:
        """Return all values of a dataset whose elements are Python objects."""
        whole = np.empty(dataset.shape, dataset.dtype)
        for part in _parts(dataset.shape, self._at_once(dataset.dtype)):
            values = dataset[part]
            self._take(_content_bytes(values))
            whole[part] = values
        return whole

    def attribute(self, holder: Any, name: str) -> Any:
        """Return the value of one attribute."""
        identifier = holder.attrs.get_id(name)
        shape, dtype = identifier.shape, identifier.dtype
        elements = math.prod(shape)
        self._take(_least_bytes(shape, dtype))
        if dtype.hasobject and elements > self._at_once(dtype):
            raise self._error(elements * self._file_bytes)
        value = holder.attrs[name]
        if dtype.hasobject:
            self._take(_content_bytes(value))
        return value

    def _at_once(self, dtype: Any) -> int:
        """Return how many elements may be read before their sizes are known."""
        return max(1, self._limit // (self._file_bytes * _objects(dtype)))

    def _take(self, size: int) -> None:
        self._used += size
        if self._used > self._limit:
            raise self._error(self._used)

    def _error(self, size: int) -> SchemaError:
        return SchemaError(f"variables of {size:,} bytes pass the limit of {self._limit:,}, Limits.member_bytes")


def _objects(dtype: Any) -> int:
    """Return how many Python objects one element holds."""
    if dtype.subdtype is not None:
        return math.prod(dtype.subdtype[1]) * _objects(dtype.subdtype[0])
    if dtype.names is not None:
        return sum(_objects(dtype.fields[name][0]) for name in dtype.names)
    return int(dtype.hasobject)


def _least_bytes(shape: Any, dtype: Any) -> int:
    return math.prod(shape) * (dtype.itemsize + _OBJECT_BYTES * _objects(dtype))


def _content_bytes(values: Any) -> int:
    """Return the bytes of text and lists among the values."""
    if isinstance(values, np.void) or (isinstance(values, np.ndarray) and values.dtype.names is not None):
        return sum(_content_bytes(values[name]) for name in values.dtype.names or ())
    if isinstance(values, np.ndarray):
        return sum(map(_content_bytes, values.ravel())) if values.dtype.hasobject else values.nbytes
    return len(values) if isinstance(values, str | bytes) else 0


def _parts(shape: tuple[int, ...], most: int) -> Iterator[tuple[Any, ...]]:
    """Return indices of parts that make up an array, each of at most `most` elements."""
    if math.prod(shape) <= most or not shape:
        yield (...,)
        return
    each = math.prod(shape[1:])
    if each <= most:
        step = most // max(1, each)
        yield from ((slice(begin, begin + step), ...) for begin in range(0, shape[0], step))
        return
    for at in range(shape[0]):
        yield from ((at, *part) for part in _parts(shape[1:], most))
