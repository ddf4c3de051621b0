"""Arrays in npy files: read their values without pickle, and draw them as small pictures.

This module must not do I/O.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np

from ais_tar2tf.values.file_headers import array_header

__all__ = ["array_of", "as_picture", "png"]

_MOST_VALUES = 65_536  # the largest number of values that `spread_values` returns
# The largest height and the largest width of a picture, in pixels. A line has fewer than twice as many points.
_SIDE = 96
_CHANNELS = (3, 4)

Array = np.ndarray[Any, Any]


def array_of(data: bytes) -> Array | None:
    """Return the array in an npy file of numbers; None for anything else, and for a truncated file."""
    header = array_header(data)
    if header is None:
        return None
    dtype = np.dtype(header.dtype)
    count = math.prod(header.shape)
    if dtype.kind not in "biuf" or len(data) < header.begin + count * dtype.itemsize:
        return None
    stored = dtype.newbyteorder(">") if b"'>" in data[: header.begin] else dtype
    flat = np.frombuffer(data, stored, count, header.begin)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")


def spread_values(array: Array) -> Array:
    """Return at most `_MOST_VALUES` of the array's values, spread evenly over it."""
    step = max(1, -(-array.size // _MOST_VALUES))
    return array.reshape(-1)[::step]


def as_picture(array: Array) -> tuple[str, Any] | None:
    """Return ("line", values) for an array of one dimension, and ("image", PNG) for an array of more dimensions.

    Dimensions of size 1 do not count. Return None for an empty array, and for an array of a single value.
    """
    if not array.size:
        return None
    squeezed = np.squeeze(array)
    if squeezed.ndim == 0:
        return None
    if squeezed.ndim == 1:
        step = max(1, squeezed.size // _SIDE)
        return "line", [float(each) for each in squeezed[::step][: 2 * _SIDE]]
    return "image", png(_pixels(squeezed))


def _pixels(array: Array) -> Array:
    """Return uint8 pixels, height × width × 3. Height and width are reduced separately, to at most `_SIDE`.

    A uint8 array of height × width × 3 or 4 is an RGB or RGBA image, and keeps its colours. Any other array is
    reduced to two dimensions, and its values become shades from the lowest to the highest value.
    """
    coloured = array.ndim == 3 and array.shape[2] in _CHANNELS and array.dtype == np.uint8
    while array.ndim > (3 if coloured else 2):
        array = array[..., 0] if array.shape[-1] < array.shape[0] else array[0]
    down, across = (max(1, math.ceil(size / _SIDE)) for size in array.shape[:2])
    array = array[::down, ::across]
    if coloured:
        return np.ascontiguousarray(array[..., :3])
    values = array.astype(np.float64) / 2  # halves, because the difference of two large numbers may overflow
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    shades = np.where(finite, (values - low) / ((high - low) or 1.0), 0.0)
    return _shaded(shades)


_RAMP = np.array([(20, 24, 60), (48, 76, 148), (44, 138, 150), (112, 190, 112), (250, 226, 88)], np.float64)


def _shaded(shades: Array) -> Array:
    """Return colours for shades from 0 to 1: dark blue to yellow, which colour-blind people can tell apart, too."""
    position = shades * (len(_RAMP) - 1)
    below = np.clip(position.astype(np.int64), 0, len(_RAMP) - 2)
    part = (position - below)[..., None]
    return (_RAMP[below] * (1 - part) + _RAMP[below + 1] * part).astype(np.uint8)


def png(pixels: Array) -> bytes:
    """Return a PNG of uint8 pixels, height × width × 3."""
    height, width = pixels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
