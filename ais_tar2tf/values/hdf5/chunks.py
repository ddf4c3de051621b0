"""Reads all values of one HDF5 dataset.

Here, a chunk is a chunk of HDF5: a cell of the grid into which a dataset is divided. To store a chunk, HDF5 applies
the filters of its dataset: first shuffle, if the dataset has this filter, then deflate. Shuffle stores the first
bytes of all elements, then the second bytes of all elements, and so on. This module inflates deflated chunks with
isal, which is several times faster than HDF5.

This module reads a dataset only if every chunk of the grid is in the file and inflates to the right size. Otherwise,
HDF5 reads the dataset: HDF5 knows the fill value of a chunk that was never written, and reports damaged chunks.

HDF5 must not run in two threads at once. h5py has a lock for this, but before version 3.15, h5py's function
`read_direct_chunk` does not take the lock, so two threads that call this function fail or crash. TensorFlow 2.21
requires such an old version of h5py. Therefore this module takes the lock itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from isal import isal_zlib

__all__ = ["ArrayFactory", "read"]

_DEFLATE, _SHUFFLE = 1, 2
_DAMAGED = cast("type[Exception]", isal_zlib.error)  # isal's stub declares the class as an instance
_SUPPORTED_FILTERS = ([_DEFLATE], [_SHUFFLE, _DEFLATE])

_Offset = tuple[int, ...]


class _UnusableChunk(Exception):
    """Raised when a chunk is not in the file, or is not the output of the dataset's filters."""


ArrayFactory = Callable[[tuple[int, ...], Any], Any]
"""A function that creates an array from a shape and a dtype, as `np.empty` does."""


def read(dataset: Any, file_bytes: int, new_array: ArrayFactory = np.empty) -> Any:
    """Return all values of an h5py dataset of numbers.

    Args:
        dataset: The dataset.
        file_bytes: The size of the file; no stored chunk can be larger.
        new_array: Creates the array that is returned. If HDF5 reads the dataset, h5py creates this array instead.
    """
    filters = _filters(dataset)
    if dataset.chunks is None or filters not in _SUPPORTED_FILTERS or not dataset.size:
        return np.asarray(dataset[()])
    whole = new_array(dataset.shape, dataset.dtype)
    try:
        for offset, stored in _stored_chunks(dataset, file_bytes):
            _copy_into(whole, offset, _decoded(stored, dataset, shuffled=len(filters) == 2))
    except _UnusableChunk:
        return np.asarray(dataset[()])
    return whole


def _stored_chunks(dataset: Any, file_bytes: int) -> Iterator[tuple[_Offset, bytes]]:
    """Yield the offset in the dataset and the stored bytes of each chunk of the grid.

    Raises:
        _UnusableChunk: A chunk is missing, was stored without one of the filters, or is larger than the file.
    """
    from h5py._objects import phil as lock  # the lock has no public name

    grid = [range(0, extent, chunk) for extent, chunk in zip(dataset.shape, dataset.chunks, strict=True)]
    with lock:
        if dataset.id.get_num_chunks() != math.prod(map(len, grid)):
            raise _UnusableChunk
    for offset in itertools.product(*grid):
        with lock:
            info = dataset.id.get_chunk_info_by_coord(offset)
            if info.byte_offset is None or info.filter_mask or info.size > file_bytes:
                raise _UnusableChunk
            mask, stored = dataset.id.read_direct_chunk(offset)
        if mask:
            raise _UnusableChunk
        yield offset, stored


def _filters(dataset: Any) -> list[int]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(at)[0] for at in range(properties.get_nfilters())]


def _decoded(stored: bytes, dataset: Any, *, shuffled: bool) -> Any:
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    inflater = isal_zlib.decompressobj()
    try:
        raw = inflater.decompress(stored, size + 1)  # one more byte, to notice a chunk that is too large
    except _DAMAGED as error:
        raise _UnusableChunk from error
    if len(raw) != size or not inflater.eof:
        raise _UnusableChunk
    if shuffled and dataset.dtype.itemsize > 1:
        raw = _unshuffled(raw, dataset.dtype.itemsize)
    return np.frombuffer(raw, dataset.dtype).reshape(dataset.chunks)


def _unshuffled(raw: bytes, itemsize: int) -> Any:
    planes = np.frombuffer(raw, np.uint8).reshape(itemsize, -1)
    elements = np.empty((planes.shape[1], itemsize), np.uint8)
    for position, plane in enumerate(planes):
        elements[:, position] = plane
    return elements


def _copy_into(whole: Any, offset: _Offset, chunk: Any) -> None:
    """Copy a chunk into the array of all values. A chunk at the edge of the grid may extend beyond the array."""
    ends = [min(at + size, end) for at, size, end in zip(offset, chunk.shape, whole.shape, strict=True)]
    part = tuple(slice(at, end) for at, end in zip(offset, ends, strict=True))
    whole[part] = chunk[tuple(slice(0, end - at) for at, end in zip(offset, ends, strict=True))]
