"""Record files → tuples of tensors, parsed many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf.features import SHAPE
from ais_tar2tf.options import MIB
from ais_tar2tf.parsing import parse_spec, restore
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
    schema = schema_of(types)
    spec = parse_spec(schema)

    def finish(parsed: dict[str, Any]) -> tuple[Any, ...]:
        found = restore(schema, parsed)
        return tuple(_value(found, name, kind, with_shapes) for name, kind in types.items())

    return (
        tf.data.TFRecordDataset(list(paths), buffer_size=_READ_BUFFER)
        .batch(_PARSED)
        .map(_parse_with(spec), num_parallel_calls=tf.data.AUTOTUNE)
        .unbatch()
        .map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def _parse_with(spec: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda serialized: tf.io.parse_example(serialized, spec)


def _value(found: Mapping[str, Any], name: str, kind: FieldType, with_shapes: bool) -> Any:
    value = found[name]
    if kind is FieldType.TYPE_DOUBLE:
        # The rounded number behind the exact one: files of other writers have only that.
        return tf.concat([found[EXACT.format(name)], tf.cast(value, tf.float64)[tf.newaxis]], 0)[0]
    if kind.is_array and with_shapes:
        shape = found[SHAPE.format(name)]  # empty where another writer wrote the file
        return tf.reshape(value, tf.cond(tf.size(shape) > 0, lambda: shape, lambda: tf.constant([-1], tf.int64)))
    return value
