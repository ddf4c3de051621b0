"""The values of an HDF5 dataset. Deflated chunks are inflated here by isal, several times faster than HDF5 does it.

A chunk as it lies in the file went through the dataset's filters in their order: here shuffle, then deflate. Shuffle
lays out the first bytes of all elements, then all second bytes, and so on.

Chunks are read here only where every chunk of the grid is in the file and inflates to its size. HDF5 itself reads
whatever else there is: it knows the fill value of a chunk that was never written, and says what is wrong with one.

HDF5 is one thread's at a time, and h5py's lock sees to it. But `read_direct_chunk` before h5py 3.15, and TensorFlow
2.21 asks for such a one, doesn't take that lock: two threads in it end in an error or a crash. So it's taken here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from isal import isal_zlib

__all__ = ["Empty", "read"]

_DEFLATE, _SHUFFLE = 1, 2
_DAMAGED = cast("type[Exception]", isal_zlib.error)  # isal's stub takes the class for an instance
_READ_HERE = ([_DEFLATE], [_SHUFFLE, _DEFLATE])

Offset = tuple[int, ...]


class _NotWhole(Exception):
    """A chunk is not in the file, or not as the dataset's filters make it."""


Empty = Callable[[tuple[int, ...], Any], Any]
"""Makes an array of a shape and a type, as `np.empty` does."""


def read(dataset: Any, file_bytes: int, empty: Empty = np.empty) -> Any:
    """Return all values of an h5py dataset of numbers, in a file of so many bytes."""
    filters = _filters(dataset)
    if dataset.chunks is None or filters not in _READ_HERE or not dataset.size:
        return np.asarray(dataset[()])
    whole = empty(dataset.shape, dataset.dtype)
    try:
        for offset, stored in _stored(dataset, file_bytes):
            _place(whole, offset, _chunk(stored, dataset, shuffled=len(filters) == 2))
    except _NotWhole:
        return np.asarray(dataset[()])
    return whole


def _stored(dataset: Any, file_bytes: int) -> Iterator[tuple[Offset, bytes]]:
    """Return the place and the bytes of each chunk of the grid.

    Raises:
        _NotWhole: A chunk is missing, or a filter was left out for one.
    """
    from h5py._objects import phil as lock  # the lock has no public name

    grid = [range(0, extent, chunk) for extent, chunk in zip(dataset.shape, dataset.chunks, strict=True)]
    with lock:
        if dataset.id.get_num_chunks() != math.prod(map(len, grid)):
            raise _NotWhole
    for offset in itertools.product(*grid):
        with lock:
            info = dataset.id.get_chunk_info_by_coord(offset)
            if info.byte_offset is None or info.filter_mask or info.size > file_bytes:
                raise _NotWhole
            mask, stored = dataset.id.read_direct_chunk(offset)
        if mask:
            raise _NotWhole
        yield offset, stored


def _filters(dataset: Any) -> list[int]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(at)[0] for at in range(properties.get_nfilters())]


def _chunk(stored: bytes, dataset: Any, *, shuffled: bool) -> Any:
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    inflating = isal_zlib.decompressobj()
    try:
        raw = inflating.decompress(stored, size + 1)  # at most one byte more than there may be
    except _DAMAGED as error:
        raise _NotWhole from error
    if len(raw) != size or not inflating.eof:
        raise _NotWhole
    if shuffled and dataset.dtype.itemsize > 1:
        raw = _unshuffled(raw, dataset.dtype.itemsize)
    return np.frombuffer(raw, dataset.dtype).reshape(dataset.chunks)


def _unshuffled(raw: bytes, width: int) -> Any:
    planes = np.frombuffer(raw, np.uint8).reshape(width, -1)
    elements = np.empty((planes.shape[1], width), np.uint8)
    for place in range(width):
        elements[:, place] = planes[place]
    return elements


def _place(whole: Any, offset: Offset, chunk: Any) -> None:
    """A chunk's part of the whole; chunks at its edge reach beyond it."""
    ends = [min(at + size, end) for at, size, end in zip(offset, chunk.shape, whole.shape, strict=True)]
    part = tuple(slice(at, end) for at, end in zip(offset, ends, strict=True))
    whole[part] = chunk[tuple(slice(0, end - at) for at, end in zip(offset, ends, strict=True))]
