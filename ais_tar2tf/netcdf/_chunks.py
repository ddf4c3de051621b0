"""The values of an HDF5 dataset. Deflated chunks are inflated here by isal, several times faster than HDF5 does it.

A chunk as it lies in the file went through the dataset's filters in their order: here shuffle, then deflate. Shuffle
lays out the first bytes of all elements, then all second bytes, and so on.

HDF5 is one thread's at a time, and h5py's lock sees to it. But `read_direct_chunk` before h5py 3.15, and TensorFlow
2.21 asks for such a one, doesn't take that lock: two threads in it end in an error or a crash. So it's taken here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from isal import isal_zlib

__all__ = ["read"]

_DEFLATE, _SHUFFLE = 1, 2
_READ_HERE = ([_DEFLATE], [_SHUFFLE, _DEFLATE])


def read(dataset: Any) -> Any:
    """All values of an h5py dataset."""
    from h5py._objects import phil as lock  # the lock has no public name

    filters = _filters(dataset)
    if dataset.chunks is None or filters not in _READ_HERE or dataset.dtype.hasobject or not dataset.size:
        return np.asarray(dataset[()])
    if dataset.id.get_num_chunks() * int(np.prod(dataset.chunks)) < dataset.size:
        return np.asarray(dataset[()])  # some chunks were never written: HDF5 knows what stands for them
    whole = np.empty(dataset.shape, dataset.dtype)
    for number in range(dataset.id.get_num_chunks()):
        with lock:
            info = dataset.id.get_chunk_info(number)
            mask, stored = dataset.id.read_direct_chunk(info.chunk_offset)
        if mask:  # a filter was left out for this chunk
            return np.asarray(dataset[()])
        _place(whole, info.chunk_offset, _chunk(stored, dataset, shuffled=len(filters) == 2))
    return whole


def _filters(dataset: Any) -> list[int]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(at)[0] for at in range(properties.get_nfilters())]


def _chunk(stored: bytes, dataset: Any, *, shuffled: bool) -> Any:
    size = int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    inflating = isal_zlib.decompressobj()
    raw = inflating.decompress(stored, size + 1)  # at most one byte more than there may be
    if len(raw) != size:
        raise ValueError(f"a chunk of {dataset.name!r} inflates to another size than its {size:,} bytes")
    if shuffled and dataset.dtype.itemsize > 1:
        raw = _unshuffled(raw, dataset.dtype.itemsize)
    return np.frombuffer(raw, dataset.dtype).reshape(dataset.chunks)


def _unshuffled(raw: bytes, width: int) -> Any:
    planes = np.frombuffer(raw, np.uint8).reshape(width, -1)
    elements = np.empty((planes.shape[1], width), np.uint8)
    for place in range(width):
        elements[:, place] = planes[place]
    return elements


def _place(whole: Any, offset: tuple[int, ...], chunk: Any) -> None:
    """A chunk's part of the whole; chunks at its edge reach beyond it."""
    ends = [min(at + size, end) for at, size, end in zip(offset, chunk.shape, whole.shape, strict=True)]
    part = tuple(slice(at, end) for at, end in zip(offset, ends, strict=True))
    whole[part] = chunk[tuple(slice(0, end - at) for at, end in zip(offset, ends, strict=True))]
