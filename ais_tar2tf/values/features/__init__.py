"""Encoding and decoding of tf.train.Examples without TensorFlow, and the helper functions of TensorFlow's guides.

The wire format consists of these messages:

    Example  = field 1: Features         BytesList = field 1, repeated bytes
    Features = field 1, repeated: entry  FloatList = field 1, packed float32, little-endian
    entry    = field 1: name             Int64List = field 1, packed varints
               field 2: Feature          Feature   = field 1 BytesList | 2 FloatList | 3 Int64List

`encode` and `decode` use no schema; `ais_tar2tf.values.schema` converts between these lists and fields.
"""

from __future__ import annotations

from ais_tar2tf.values.features.decoding import decode
from ais_tar2tf.values.features.encoding import bytes_head as bytes_head
from ais_tar2tf.values.features.encoding import encode
from ais_tar2tf.values.features.encoding import example_head as example_head
from ais_tar2tf.values.features.feature_lists import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES
from ais_tar2tf.values.features.feature_lists import as_float32s as as_float32s
from ais_tar2tf.values.features.feature_lists import as_numpy as as_numpy
from ais_tar2tf.values.features.helpers import (
    bytes_feature,
    float_feature,
    float_feature_array,
    int64_feature,
    serialize_example,
    tf_serialize_example,
)

__all__ = [
    "FLAT_VALUES",
    "INDICES",
    "ROW_LENGTHS",
    "SHAPE",
    "VALUES",
    "_bytes_feature",
    "_float_feature",
    "_float_feature_array",
    "_int64_feature",
    "bytes_feature",
    "decode",
    "encode",
    "float_feature",
    "float_feature_array",
    "int64_feature",
    "serialize_example",
    "tf_serialize_example",
]


def __dir__() -> list[str]:
    return sorted(__all__)


_bytes_feature, _int64_feature = bytes_feature, int64_feature  # the names in TensorFlow's guides
_float_feature, _float_feature_array = float_feature, float_feature_array
