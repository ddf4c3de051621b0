"""Schemas of records: inferred from records, stored as JSON, and used to encode and decode tf.train.Examples. No I/O.

This package does not import TensorFlow. `values.parse_specs` converts a schema to parse specs of TensorFlow.

    inference = Inference()
    for record in records:
        inference.add(record)
    payload = inference.schema.encode(record)  # a tf.train.Example
    record = inference.schema.decode(payload)
"""

from __future__ import annotations

from ais_tar2tf.values.schema.field import ENCODINGS, Field
from ais_tar2tf.values.schema.field import TEXT_DTYPES as TEXT_DTYPES
from ais_tar2tf.values.schema.inference import Inference, infer
from ais_tar2tf.values.schema.kinds import KINDS as KINDS
from ais_tar2tf.values.schema.kinds import LABEL_FIELDS as LABEL_FIELDS
from ais_tar2tf.values.schema.kinds import extension_of as extension_of
from ais_tar2tf.values.schema.kinds import kind_of_field as kind_of_field
from ais_tar2tf.values.schema.schema import Schema
from ais_tar2tf.values.schema.storage import Sparse
from ais_tar2tf.values.schema.storage import feature_names as feature_names
from ais_tar2tf.values.schema.storage import has_shape_feature as has_shape_feature
from ais_tar2tf.values.schema.storage import ragged_rank as ragged_rank
from ais_tar2tf.values.schema.storage import store as store
from ais_tar2tf.values.schema.storage import wire_dtype as wire_dtype
from ais_tar2tf.values.schema.written_numbers import NUMBER_DTYPES as NUMBER_DTYPES
from ais_tar2tf.values.schema.written_numbers import is_written_number as is_written_number
from ais_tar2tf.values.schema.written_numbers import number_of_text as number_of_text

# The public names. Other rooms of ais_tar2tf use the other names.
__all__ = [
    "ENCODINGS",
    "Field",
    "Inference",
    "Schema",
    "Sparse",
    "infer",
]


def __dir__() -> list[str]:
    return sorted(__all__)
