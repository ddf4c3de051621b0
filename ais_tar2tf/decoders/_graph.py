"""Scalar string tensors → tensors, by TensorFlow's operations; an npy file, for which there is none, by Python."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.arrays import decode_npy
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.mapping import held, to_number

__all__ = ["array", "image", "label", "number", "sound"]


_JPEG_RATIOS = (8, 4, 2, 1)  # by which a JPEG can be made smaller before its frequencies become pixels


def image(encoded: Any, dtype: str, channels: int, shape: Any, at_least: tuple[int, int] | None = None) -> Any:
    import tensorflow as tf

    def whole() -> Any:
        return tf.io.decode_image(encoded, channels, tf.as_dtype(dtype), expand_animations=False)

    if at_least is None:
        decoded = whole()
    else:
        decoded = tf.cond(tf.io.is_jpeg(encoded), lambda: _scaled(encoded, dtype, channels, at_least), whole)
        shape = None  # it was that of the picture as it is stored
    return tf.ensure_shape(decoded, shape or (None, None, channels or None))


def _scaled(encoded: Any, dtype: str, channels: int, at_least: tuple[int, int]) -> Any:
    """A JPEG, made smaller by the largest ratio that leaves so many rows and columns."""
    import tensorflow as tf

    def by(ratio: int) -> Any:
        return lambda: tf.io.decode_jpeg(encoded, channels, ratio)

    size = tf.io.extract_jpeg_shape(encoded)[:2]
    fits = [tf.reduce_all((size + ratio - 1) // ratio >= at_least) for ratio in _JPEG_RATIOS[:-1]]
    choice = tf.argmax(tf.stack([*fits, True]), output_type=tf.int32)
    pixels = tf.switch_case(choice, [by(ratio) for ratio in _JPEG_RATIOS])
    return tf.image.convert_image_dtype(pixels, tf.as_dtype(dtype))


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
    unknown = tf.strings.join(["label '", word, "' is not in its vocabulary"])
    return held(tf.argmax(tf.cast(found, tf.int32)), tf.reduce_any(found), unknown)


def array(encoded: Any, dtype: str, shape: Any) -> Any:
    import tensorflow as tf

    def load(data: bytes) -> Any:
        loaded = decode_npy(data)
        if loaded.dtype.newbyteorder("=") != dtype:
            raise SchemaError(f"the array is {loaded.dtype}, and {dtype} was said or seen before")
        return loaded.astype(dtype, copy=False)

    loaded = tf.numpy_function(load, [encoded], tf.as_dtype(dtype), stateful=False)
    return tf.ensure_shape(loaded, shape)
