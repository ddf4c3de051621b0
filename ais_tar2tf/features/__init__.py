"""tf.train.Example: a codec of its wire format that needs no TensorFlow, and the helpers of TensorFlow's guides.

    Example  = field 1: Features         BytesList = field 1, repeated bytes
    Features = field 1, repeated: entry  FloatList = field 1, packed float32, little-endian
    entry    = field 1: name             Int64List = field 1, packed varints
               field 2: Feature          Feature   = field 1 BytesList | 2 FloatList | 3 Int64List

`encode` and `decode` know nothing of a schema; `ais_tar2tf.schema` says what the lists mean.
"""

from __future__ import annotations

from ais_tar2tf.features._decode import decode
from ais_tar2tf.features._encode import bytes_head, encode, example_head
from ais_tar2tf.features._helpers import (
    bytes_feature,
    float_feature,
    float_feature_array,
    int64_feature,
    serialize_example,
    tf_serialize_example,
)
from ais_tar2tf.features._values import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES, as_float32s

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
    "as_float32s",
    "bytes_feature",
    "bytes_head",
    "decode",
    "encode",
    "example_head",
    "float_feature",
    "float_feature_array",
    "int64_feature",
    "serialize_example",
    "tf_serialize_example",
]

_bytes_feature, _int64_feature = bytes_feature, int64_feature  # the guides' spellings
_float_feature, _float_feature_array = float_feature, float_feature_array
