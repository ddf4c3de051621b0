"""Scalar string tensors → tensors, by TensorFlow's operations; an npy file, for which there is none, by Python."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.arrays import decode_npy
from ais_tar2tf.mapping import to_number

__all__ = ["array", "image", "label", "number", "sound"]


def image(encoded: Any, dtype: str, channels: int, shape: Any) -> Any:
    import tensorflow as tf

    decoded = tf.io.decode_image(encoded, channels, tf.as_dtype(dtype), expand_animations=False)
    return tf.ensure_shape(decoded, shape or (None, None, channels or None))


def sound(encoded: Any) -> Any:
    import tensorflow as tf

    return tf.audio.decode_wav(encoded).audio


def number(written: Any, dtype: str) -> Any:
    return to_number(written, dtype)


def label(written: Any, vocabulary: tuple[str, ...]) -> Any:
    """The place of a word in its vocabulary."""
    import tensorflow as tf

    word = tf.strings.strip(written)
    found = tf.equal(tf.constant(vocabulary), word)
    known = tf.debugging.Assert(
        tf.reduce_any(found), [tf.strings.join(["label '", word, "' is not in its vocabulary"])]
    )
    with tf.control_dependencies([known] if known is not None else []):
        return tf.argmax(tf.cast(found, tf.int32))


def array(encoded: Any, dtype: str, shape: Any) -> Any:
    import tensorflow as tf

    def load(data: bytes) -> Any:
        loaded = decode_npy(data)
        if loaded.dtype.newbyteorder("=") != dtype:
            raise TypeError(f"the array is {loaded.dtype}, and {dtype} was said or seen before")
        return loaded.astype(dtype, copy=False)

    loaded = tf.numpy_function(load, [encoded], tf.as_dtype(dtype), stateful=False)
    return tf.ensure_shape(loaded, shape)
