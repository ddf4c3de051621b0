"""Images and numbers made into others: one implementation by TensorFlow, for tensors and for plain values.

A tensor gives a tensor; a plain value gives what numpy has for the same tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ais_tar2tf.mapping import to_number

__all__ = ["convert", "resize", "rotate"]


def _on_either(function: Callable[[Any], Any], value: Any) -> Any:
    import tensorflow as tf

    if tf.is_tensor(value):
        return function(value)
    with tf.device("CPU:0"):  # a record's image is not worth the way to a GPU and back
        return function(tf.convert_to_tensor(value)).numpy()


def convert(value: Any, dtype: str) -> Any:
    """Images (rank 3 and more) scaled as tf.image.convert_image_dtype does; text read as a number; others cast."""
    import tensorflow as tf

    wanted = tf.as_dtype(dtype)

    def converted(tensor: Any) -> Any:
        if tensor.dtype == tf.string:
            return tensor if wanted == tf.string else to_number(tensor, wanted)
        if tensor.shape.rank is not None and tensor.shape.rank >= 3:
            return tf.image.convert_image_dtype(tensor, wanted)
        return tf.cast(tensor, wanted)

    return _on_either(converted, value)


def resize(value: Any, size: tuple[int, int]) -> Any:
    """tf.image.resize, whose shape is known also where an image's own was not."""
    import tensorflow as tf

    def resized(tensor: Any) -> Any:
        return tf.image.resize(tensor, size)

    return _on_either(resized, value)


def rotate(value: Any, degrees: float) -> Any:
    """Counter-clockwise about the centre, bilinear, the size kept, black where nothing was."""
    import tensorflow as tf

    def rotated(image: Any) -> Any:
        shape = tf.shape(image)
        turned = tf.raw_ops.ImageProjectiveTransformV3(
            images=image[None],
            transforms=_turn(degrees, tf.cast(shape[0], tf.float32), tf.cast(shape[1], tf.float32)),
            output_shape=shape[:2],
            fill_value=tf.constant(0, tf.float32),
            interpolation="BILINEAR",
            fill_mode="CONSTANT",
        )
        return tf.ensure_shape(turned[0], image.shape)

    return _on_either(rotated, value)


def _turn(degrees: float, height: Any, width: Any) -> Any:
    """The eight numbers of a projection from places in the result to places in the image.

    x' = cos·x - sin·y + a   y' = sin·x + cos·y + b, where the centre stays: a and b follow from it
    """
    import tensorflow as tf

    quarter, rest = divmod(degrees, 90)
    if rest == 0:  # exactly, for a rounded cosine would mix in what is beside the image
        cos, sin = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][int(quarter) % 4]
    else:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    a, b = x - (cos * x - sin * y), y - (sin * x + cos * y)
    zero = tf.zeros_like(a)
    return tf.stack([zero + cos, zero - sin, a, zero + sin, zero + cos, b, zero, zero])[None]
