"""Bytes → Python values and numpy arrays. Images and sounds are TensorFlow's work, which is imported for them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np

from ais_tar2tf.headers import array_header
from ais_tar2tf.options import Limits

__all__ = ["audio", "hdf5", "image", "npy", "npz", "number", "text", "unpacked", "value_of_json"]

_LIMITS = Limits()


def image(data: bytes, dtype: str = "uint8", channels: int = 0, at_least: tuple[int, int] | None = None) -> Any:
    """Pixels, as tf.io.decode_image gives them; of an animation the first."""
    import tensorflow as tf

    if at_least is not None:
        from ais_tar2tf.decoders import _graph

        return _graph.image(tf.constant(data), dtype, channels, None, at_least).numpy()
    return tf.io.decode_image(data, channels, tf.as_dtype(dtype), expand_animations=False).numpy()


def audio(data: bytes) -> Any:
    """Samples by channels in -1..1, of 16-bit WAV."""
    import tensorflow as tf

    if data[:4] == b"fLaC":
        raise ValueError("TensorFlow decodes WAV, not FLAC; decode it by a function of yours")
    return tf.audio.decode_wav(data).audio.numpy()


def text(data: bytes) -> str:
    """UTF-8."""
    return data.decode()


def number(data: bytes, dtype: str = "int64") -> Any:
    """A number as text, with spaces around it."""
    written = data.decode("utf-8", "backslashreplace").strip()
    try:
        return int(written) if np.dtype(dtype).kind in "iu" else float(written)
    except ValueError:
        raise ValueError(
            f"{written[:80]!r} is not a number; if these are words, name all of them: "
            "decode={'cls': ['cat', 'dog', …]}"
        ) from None


def value_of_json(data: bytes) -> Any:
    """What JSON says."""
    return json.loads(data)


def unpacked(data: bytes) -> Any:
    """What msgpack says; types of somebody's own stay bytes with a number."""
    import msgpack

    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def npy(data: bytes) -> Any:
    """An array; one of Python objects would need pickle, and is refused."""
    header = array_header(data)
    if header is None:
        raise ValueError("this is no npy file of plain numbers")
    dtype = np.dtype(header.dtype)
    if len(data) - header.begin < dtype.itemsize * int(np.prod(header.shape, dtype=object)):
        raise ValueError(f"the file is cut: {header.dtype} {header.shape} needs more bytes")
    return np.load(io.BytesIO(data), allow_pickle=False)


def npz(data: bytes) -> dict[str, Any]:
    """Arrays by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        expanded = sum(info.file_size for info in archive.infolist())
        if expanded > min(_LIMITS.member_bytes, _LIMITS.ratio * len(data)):
            raise ValueError(f"{expanded:,} bytes are packed in it, over Limits.member_bytes or Limits.ratio")
        return {name.removesuffix(".npy"): npy(archive.read(name)) for name in archive.namelist()}


def hdf5(data: bytes) -> dict[str, Any]:
    """Arrays by path, of HDF5 and netCDF-4; attributes of the file under their name with an `@` before it."""
    from ais_tar2tf.decoders._hdf5 import arrays_of

    return arrays_of(data)
