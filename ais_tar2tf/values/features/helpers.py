"""The helper functions of TensorFlow's guides, with the same names.

Importing this module does not import TensorFlow; calling a function does.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import FeatureOverflow, NoFeature
from ais_tar2tf.values.features.encoding import encode
from ais_tar2tf.values.features.feature_lists import TEXT_TYPES, as_bytes, as_numpy

tf: Any = LazyModule("tensorflow")

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
    """Return a tf.train.Feature of one string.

    Args:
        value: Bytes, text, or a scalar string tensor.

    Raises:
        NoFeature: The value has another type.
    """
    plain = as_numpy(value)
    if not isinstance(plain, TEXT_TYPES):
        raise NoFeature(f"bytes or text is expected, not {type(plain).__name__}")
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[as_bytes("", plain)]))


def float_feature(value: Any) -> Any:
    """Return a tf.train.Feature of one float.

    Args:
        value: A number or a scalar tensor.
    """
    return float_feature_array([as_numpy(value)])


def float_feature_array(value: Iterable[Any]) -> Any:
    """Return a tf.train.Feature of several floats.

    Args:
        value: A list, an array or a tensor of one dimension.
    """
    return tf.train.Feature(float_list=tf.train.FloatList(value=[float(each) for each in as_numpy(value)]))


def int64_feature(value: Any) -> Any:
    """Return a tf.train.Feature of one integer.

    Args:
        value: A bool, an enum, a signed or unsigned integer, or a scalar tensor.

    Raises:
        FeatureOverflow: The number does not fit into int64.
    """
    plain = as_numpy(value)
    plain = plain.value if isinstance(plain, enum.Enum) else plain
    number = operator.index(bool(plain) if isinstance(plain, np.bool_) else plain)
    if not -(2**63) <= number < 2**63:
        raise FeatureOverflow(f"{number} does not fit into an int64")
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))


def serialize_example(*values: Any, names: Sequence[str] = _NAMES) -> bytes:
    """Return a serialized tf.train.Example.

    Args:
        *values: The values of the features. `encode` says which values are accepted.
        names: The names of the features, one for each value; by default `image_binary` and `label`.

    Raises:
        NoFeature: One of the values is of a type that a tf.train.Example cannot hold.
        FeatureOverflow: A number does not fit into int64 or float32.
    """
    return encode(dict(zip(names, map(as_numpy, values), strict=True)))


def tf_serialize_example(*values: Any, names: Sequence[str] = _NAMES) -> Any:
    """Return a serialized tf.train.Example as a tensor; for the `.map()` of a dataset.

    Args:
        *values: The values of the features, as tensors.
        names: The names of the features, one for each value; by default `image_binary` and `label`.

    Returns:
        A scalar string tensor.

    Example:
        serialized = dataset.map(t2t.features.tf_serialize_example)
    """

    def serialize(*arrays: Any) -> bytes:
        return encode(dict(zip(names, arrays, strict=True)))

    return tf.ensure_shape(tf.numpy_function(serialize, values, tf.string), ())
