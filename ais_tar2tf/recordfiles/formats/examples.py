"""The base class of formats whose records are tf.train.Examples, and the serialization of Examples."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import NoFeature
from ais_tar2tf.recordfiles.formats.base import RecordFormat
from ais_tar2tf.recordfiles.formats.rows import Row
from ais_tar2tf.records import Record

__all__ = ["ExampleFormat", "serialized"]


class ExampleFormat(RecordFormat):
    """A format whose records are serialized tf.train.Examples. TFDS reads files of these formats, too."""

    holds_examples = True
    random_access = True
    read_by_tfds = True

    def row(self, record: Record, written: Any) -> Row:
        del record
        return (serialized(written),)


def serialized(example: Any) -> bytes:
    """Return the serialized form of a tf.train.Example, its bytes, or a dict of values.

    Raises:
        MalformedExample: The bytes are no tf.train.Example.
        NoFeature: The value is of another type.
    """
    from ais_tar2tf.values import features

    if isinstance(example, bytes):
        features.decode(example)  # fails now, rather than in the program that reads the file
        return example
    if isinstance(example, dict):
        return features.encode(example)
    if hasattr(example, "SerializeToString"):
        return example.SerializeToString()
    raise NoFeature(
        f"record_to_example returned {type(example).__name__}; a tf.train.Example, its bytes or a dict is expected"
    )
