"""TensorFlow operations that check values, and that convert strings into numbers and images.

The default mappings, the decoders and `ops` use them. The first call imports TensorFlow.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule

tf: Any = LazyModule("tensorflow")

__all__ = ["decode_image", "is_tensor", "to_number", "with_check"]

_SIZE = (224, 224)
# tf.strings.to_number parses these types. It refuses an integer that does not fit into the type.
_PARSED_BY_TENSORFLOW = ("float32", "float64", "int32", "int64", "uint32", "uint64")


def is_tensor(value: Any) -> bool:
    """Return whether a value is a symbolic or eager tensor. TensorFlow is not imported."""
    return hasattr(value, "op") or hasattr(value, "numpy")


def with_check(value: Any, condition: Any, message: Any) -> Any:
    """Return `value` as a tensor whose evaluation fails with `message` when `condition` is false."""
    check = tf.debugging.Assert(condition, [message])
    with tf.control_dependencies([] if check is None else [check]):  # None: eager execution has checked the condition
        return tf.identity(value)


def to_number(text: Any, dtype: Any) -> Any:
    """Parse a string tensor as a number. Surrounding whitespace is ignored. An integer that does not fit fails."""
    dtype, word = tf.as_dtype(dtype), tf.strings.strip(text)
    if dtype.name in _PARSED_BY_TENSORFLOW:
        return tf.strings.to_number(word, dtype)
    if not dtype.is_integer:
        return tf.cast(tf.strings.to_number(word, tf.float64), dtype)
    number = tf.strings.to_number(word, tf.int64)
    narrow = tf.cast(number, dtype)
    fits = tf.reduce_all(tf.equal(tf.cast(narrow, tf.int64), number))
    return with_check(
        narrow, fits, tf.strings.join([tf.strings.as_string(number), f" does not fit into {dtype.name}"])
    )


def decode_image(encoded: Any, *, scale: float = 1.0) -> Any:
    """Decode an image into float32 of shape 224×224×3, with black as 0 and white as `scale`."""
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image = tf.image.convert_image_dtype(image, tf.float32)
    return tf.ensure_shape(tf.image.resize(image, _SIZE) * scale, (*_SIZE, 3))
