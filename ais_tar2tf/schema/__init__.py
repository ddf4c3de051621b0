"""What a record is: found out, written down, checked. It says nothing of TensorFlow; `parsing` does. No I/O.

inference = Inference()
for record in records:
    inference.add(record)
payload = inference.schema.encode(record)  # a tf.train.Example
record = inference.schema.decode(payload)
"""

from __future__ import annotations

from ais_tar2tf.schema._field import ENCODINGS, FILE_ENCODINGS, TEXTS, Field
from ais_tar2tf.schema._infer import Inference, infer
from ais_tar2tf.schema._kinds import KINDS, LABEL_FIELDS, extension_of, kind_of_field
from ais_tar2tf.schema._schema import Schema
from ais_tar2tf.schema._storage import Sparse, feature_names, has_shape_feature, ragged_rank, wire_dtype

__all__ = [
    "ENCODINGS",
    "FILE_ENCODINGS",
    "KINDS",
    "LABEL_FIELDS",
    "TEXTS",
    "Field",
    "Inference",
    "Schema",
    "Sparse",
    "extension_of",
    "feature_names",
    "has_shape_feature",
    "infer",
    "kind_of_field",
    "ragged_rank",
    "wire_dtype",
]
