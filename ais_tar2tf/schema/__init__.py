"""What a record is: found out, written down, checked. It says nothing of TensorFlow; `parsing` does. No I/O.

inference = Inference()
for record in records:
    inference.add(record)
payload = inference.schema.encode(record)  # a tf.train.Example
record = inference.schema.decode(payload)
"""

from __future__ import annotations

from ais_tar2tf.schema._field import ENCODINGS, Field
from ais_tar2tf.schema._field import FILE_ENCODINGS as FILE_ENCODINGS
from ais_tar2tf.schema._field import TEXTS as TEXTS
from ais_tar2tf.schema._infer import Inference, infer
from ais_tar2tf.schema._kinds import KINDS as KINDS
from ais_tar2tf.schema._kinds import LABEL_FIELDS as LABEL_FIELDS
from ais_tar2tf.schema._kinds import extension_of as extension_of
from ais_tar2tf.schema._kinds import kind_of_field as kind_of_field
from ais_tar2tf.schema._schema import Schema
from ais_tar2tf.schema._storage import Sparse
from ais_tar2tf.schema._storage import feature_names as feature_names
from ais_tar2tf.schema._storage import has_shape_feature as has_shape_feature
from ais_tar2tf.schema._storage import ragged_rank as ragged_rank
from ais_tar2tf.schema._storage import wire_dtype as wire_dtype
from ais_tar2tf.schema._written import NUMBERS as NUMBERS
from ais_tar2tf.schema._written import is_written_number as is_written_number
from ais_tar2tf.schema._written import number_of_text as number_of_text

__all__ = ["ENCODINGS", "Field", "Inference", "Schema", "Sparse", "infer"]  # all else is the package's own


def __dir__() -> list[str]:
    return sorted(__all__)
