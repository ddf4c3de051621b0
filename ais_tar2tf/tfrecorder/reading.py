"""Record files → tuples of tensors, parsed many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf.features import SHAPE
from ais_tar2tf.loading import parsed_fields
from ais_tar2tf.options import MIB
from ais_tar2tf.tfrecorder.helpers.fields import EXACT, FieldType, schema_of

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack half of tf.data
else:
    import tensorflow as tf

__all__ = ["read_examples"]

_READ_BUFFER = 8 * MIB  # of the file that is read
_PARSED = 64  # records parsed at once: a call for each costs more than the parsing


def read_examples(paths: Sequence[str], types: Mapping[str, FieldType], *, with_shapes: bool = False) -> Any:
    """Tuples with a value for each field, in the order of the files and of the fields."""

    def finish(found: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_value(found, name, kind, with_shapes) for name, kind in types.items())

    examples = tf.data.TFRecordDataset(list(paths), buffer_size=_READ_BUFFER)
    return parsed_fields(examples, schema_of(types), _PARSED, finish).prefetch(tf.data.AUTOTUNE)


def _value(found: Mapping[str, Any], name: str, kind: FieldType, with_shapes: bool) -> Any:
    value = found[name]
    if kind is FieldType.TYPE_DOUBLE:
        # The rounded number behind the exact one: files of other writers have only that.
        return tf.concat([found[EXACT.format(name)], tf.cast(value, tf.float64)[tf.newaxis]], 0)[0]
    if kind.is_array and with_shapes:
        shape = found[SHAPE.format(name)]  # empty where another writer wrote the file
        return tf.reshape(value, tf.cond(tf.size(shape) > 0, lambda: shape, lambda: tf.constant([-1], tf.int64)))
    return value
