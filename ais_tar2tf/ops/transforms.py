"""Transformations of images and numbers, computed by TensorFlow for tensors and for plain values alike.

The result for a tensor is a tensor. The result for a plain value is the same tensor as a NumPy value. Importing this
module must not import TensorFlow: the functions import it when they are called.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ais_tar2tf.values.graph_values import to_number

__all__ = ["convert", "resize", "rotate"]


def _on_either(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a tensor, and return a tensor; or to a plain value, and return a NumPy value."""
    import tensorflow as tf

    if tf.is_tensor(value):
        return function(value)
    with tf.device("CPU:0"):  # copying an image to a GPU and back costs more than it saves
        return function(tf.convert_to_tensor(value)).numpy()


def convert(value: Any, dtype: str) -> Any:
    """Convert a value to `dtype`: parse text as a number, scale an image (rank 3 or more), or cast other values."""
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
    """Resize an image to a height and a width. In a graph, the result has a static height and width."""
    import tensorflow as tf

    return _on_either(lambda image: tf.image.resize(image, size), value)


def rotate(value: Any, degrees: float) -> Any:
    """Rotate an image counter-clockwise about its centre.

    The size stays the same, and pixels are interpolated bilinearly. Pixels from outside of the image are black.
    """
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
    """Return the eight numbers of the projection from a pixel (x, y) of the result to a pixel (x', y') of the image.

    x' = cos·x - sin·y + a and y' = sin·x + cos·y + b. The numbers a and b keep the centre where it is.
    """
    import tensorflow as tf

    quarter, rest = divmod(degrees, 90)
    if rest == 0:  # exact numbers: a rounded cosine would blend in pixels from outside of the image
        cos, sin = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][int(quarter) % 4]
    else:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    a, b = x - (cos * x - sin * y), y - (sin * x + cos * y)
    zero = tf.zeros_like(a)
    return tf.stack([zero + cos, zero - sin, a, zero + sin, zero + cos, b, zero, zero])[None]
