"""The helpers of TensorFlow's guides, by the names that they have there. They import TensorFlow when called."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import FeatureOverflow, NoFeature
from ais_tar2tf.features._encode import encode
from ais_tar2tf.features._values import TEXT, as_bytes

__all__ = [
    "bytes_feature",
    "float_feature",
    "float_feature_array",
    "int64_feature",
    "serialize_example",
    "tf_serialize_example",
]

_NAMES = ("image_binary", "label")


def bytes_feature(value: Any) -> Any:
    """A tf.train.Feature of one string: bytes, text, or a scalar string tensor."""
    import tensorflow as tf

    plain = _plain(value)
    if not isinstance(plain, TEXT):
        raise NoFeature(f"bytes or text is expected, not {type(plain).__name__}")
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[as_bytes("", plain)]))


def float_feature(value: Any) -> Any:
    """A tf.train.Feature of one float."""
    return float_feature_array([_plain(value)])


def float_feature_array(value: Iterable[Any]) -> Any:
    """A tf.train.Feature of several floats."""
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=[float(each) for each in _plain(value)]))


def int64_feature(value: Any) -> Any:
    """A tf.train.Feature of one integer: bool, enum, int or unsigned."""
    import tensorflow as tf

    plain = _plain(value)
    plain = plain.value if isinstance(plain, enum.Enum) else plain
    number = operator.index(bool(plain) if isinstance(plain, np.bool_) else plain)
    if not -(2**63) <= number < 2**63:
        raise FeatureOverflow(f"{number} does not fit into an int64")
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))


def serialize_example(*values: Any, names: Sequence[str] = _NAMES) -> bytes:
    """A serialized tf.train.Example of `values`, called `names`; unless said otherwise, an image and its label."""
    return encode(dict(zip(names, map(_plain, values), strict=True)))


def tf_serialize_example(*values: Any, names: Sequence[str] = _NAMES) -> Any:
    """The same within a dataset's `.map()`: tensors in, a scalar string tensor out."""
    import tensorflow as tf

    def serialize(*arrays: Any) -> bytes:
        return encode(dict(zip(names, arrays, strict=True)))

    return tf.ensure_shape(tf.numpy_function(serialize, values, tf.string), ())


def _plain(value: Any) -> Any:
    """Tensors as numpy has them."""
    return value.numpy() if hasattr(value, "numpy") else value
