"""tf.train.Example: a codec of its wire format that needs no TensorFlow, and the helpers of TensorFlow's guides.

    Example  = field 1: Features         BytesList = field 1, repeated bytes
    Features = field 1, repeated: entry  FloatList = field 1, packed float32, little-endian
    entry    = field 1: name             Int64List = field 1, packed varints
               field 2: Feature          Feature   = field 1 BytesList | 2 FloatList | 3 Int64List

`encode` and `decode` know nothing of a schema; `ais_tar2tf.schema` says what the lists mean.
"""

from __future__ import annotations

from ais_tar2tf.features._decode import decode
from ais_tar2tf.features._encode import bytes_head as bytes_head
from ais_tar2tf.features._encode import encode
from ais_tar2tf.features._encode import example_head as example_head
from ais_tar2tf.features._helpers import (
    bytes_feature,
    float_feature,
    float_feature_array,
    int64_feature,
    serialize_example,
    tf_serialize_example,
)
from ais_tar2tf.features._values import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES
from ais_tar2tf.features._values import as_float32s as as_float32s

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


_bytes_feature, _int64_feature = bytes_feature, int64_feature  # the guides' spellings
_float_feature, _float_feature_array = float_feature, float_feature_array
