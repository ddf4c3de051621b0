"""Decoders that map scalar string tensors to tensors, by TensorFlow's operations.

A `.npy` file is decoded by Python code that the graph calls, because TensorFlow has no operation for such files.
The import of this module must not import TensorFlow. A call of one of its functions does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.arrays import decode_npy
from ais_tar2tf.values.graph_values import with_check

tf: Any = LazyModule("tensorflow")

__all__ = ["array", "image", "label"]

_JPEG_RATIOS = (8, 4, 2, 1)  # TensorFlow can divide height and width by these numbers while it decodes a JPEG


def image(encoded: Any, dtype: str, channels: int, shape: Any, at_least: tuple[int, int] | None = None) -> Any:
    """Return the pixels of an image.

    A JPEG may be scaled down, but not below `at_least` (height, width). If this is None, no image is scaled.
    """

    def whole() -> Any:
        return tf.io.decode_image(encoded, channels, tf.as_dtype(dtype), expand_animations=False)

    if at_least is None:
        decoded = whole()
    else:
        decoded = tf.cond(tf.io.is_jpeg(encoded), lambda: _scaled(encoded, dtype, channels, at_least), whole)
        shape = None  # `shape` is the shape before scaling
    return tf.ensure_shape(decoded, shape or (None, None, channels or None))


def _scaled(encoded: Any, dtype: str, channels: int, at_least: tuple[int, int]) -> Any:
    """Return the pixels of a JPEG, scaled down by the largest ratio that keeps its size at or above `at_least`."""
    size = tf.io.extract_jpeg_shape(encoded)[:2]
    fits = [tf.reduce_all((size + ratio - 1) // ratio >= at_least) for ratio in _JPEG_RATIOS[:-1]]
    choice = tf.argmax(tf.stack([*fits, True]), output_type=tf.int32)
    pixels = tf.switch_case(choice, [partial(tf.io.decode_jpeg, encoded, channels, ratio) for ratio in _JPEG_RATIOS])
    return tf.image.convert_image_dtype(pixels, tf.as_dtype(dtype))


def label(text: Any, vocabulary: tuple[str, ...]) -> Any:
    """Return the index of the label `text` in its vocabulary. Whitespace around the label is ignored."""
    word = tf.strings.strip(text)
    matches = tf.equal(tf.constant(vocabulary), word)
    unknown = tf.strings.join(["label '", word, "' is not in its vocabulary"])
    return with_check(tf.argmax(tf.cast(matches, tf.int32)), tf.reduce_any(matches), unknown)


def array(encoded: Any, dtype: str, shape: Any) -> Any:
    """Return the array of a `.npy` file."""

    def load(data: bytes) -> Any:
        loaded = decode_npy(data)
        if loaded.dtype.newbyteorder("=") != dtype:
            raise SchemaError(f"the array is {loaded.dtype}, not {dtype} as declared or inferred")
        return loaded.astype(dtype, copy=False)

    loaded = tf.numpy_function(load, [encoded], tf.as_dtype(dtype), stateful=False)
    return tf.ensure_shape(loaded, shape)
