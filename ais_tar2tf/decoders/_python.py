"""Bytes → Python values and numpy arrays. TensorFlow is imported for sounds, and for images that Pillow cannot do."""

from __future__ import annotations

from typing import Any

from ais_tar2tf import netcdf
from ais_tar2tf.decoders import _pillow
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.schema import number_of_text

__all__ = ["audio", "hdf5", "image", "image_as_in_graph", "number", "text"]


def image(data: bytes, dtype: str = "uint8", channels: int = 0) -> Any:
    """Pixels, by Pillow where it can: `_pillow` says how those of JPEGs differ from a graph's."""
    found = _pillow.pixels(data, dtype, channels)
    return image_as_in_graph(data, dtype, channels) if found is None else found


def image_as_in_graph(data: bytes, dtype: str, channels: int, at_least: tuple[int, int] | None = None) -> Any:
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
        raise SchemaError("TensorFlow decodes WAV, not FLAC; decode it by a function of yours")
    return tf.audio.decode_wav(data).audio.numpy()


def text(data: bytes) -> str:
    """UTF-8."""
    return data.decode()


def number(data: bytes, dtype: str = "int64") -> Any:
    """A number as text, with spaces around it, as exact as its type."""
    try:
        return number_of_text(data, dtype)
    except SchemaError as error:
        words = "; if these are words, name all of them: decode={'cls': ['cat', 'dog', …]}"
        raise SchemaError(f"{error}{words if 'not a number' in str(error) else ''}") from None


def hdf5(data: bytes) -> dict[str, Any]:
    """Arrays by path, of HDF5 and netCDF-4; attributes of the file under their name with an `@` before it."""
    file = netcdf.read(data)
    return {**file.variables, **{f"@{name}": value for name, value in file.attributes.items()}}
