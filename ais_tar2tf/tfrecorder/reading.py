"""Record files → tuples of tensors, parsed many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf.export.streams import files_at
from ais_tar2tf.export.verify import frames
from ais_tar2tf.features import SHAPE
from ais_tar2tf.loading.dataset import READ_BUFFER, parsed_at_once, parsed_fields, read_payloads
from ais_tar2tf.loading.faults import NamedFile, TFRecordFiles
from ais_tar2tf.options import KIB, Read
from ais_tar2tf.schema import Schema
from ais_tar2tf.stores import split_url
from ais_tar2tf.tfrecorder.config import Stated
from ais_tar2tf.tfrecorder.helpers.fields import EXACT, FieldType, Shape, known_schema, schema_of

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack half of tf.data
else:
    import tensorflow as tf

__all__ = ["read_examples"]

_LARGE = 256 * KIB  # of a record; arrays are copied out of larger ones, too, so more of them are parsed at once


def read_examples(
    paths: Sequence[str],
    types: Mapping[str, FieldType],
    stated: Sequence[Stated | None] = (),
    *,
    with_shapes: bool = False,
) -> Any:
    """Tuples with a value for each field, in the order of the files and of the fields.

    `stated` is what stands beside the files: where each array has one shape in all of them, many are read at once.
    """
    if all(split_url(path)[0] == "file" for path in paths):
        local = [split_url(path)[2] for path in paths]
        read = tf.data.TFRecordDataset(local, buffer_size=READ_BUFFER)
        examples: Any = TFRecordFiles(read, [NamedFile(path) for path in local])
    else:
        examples = read_payloads(lambda: _payloads(paths))
    schema, shapes = _known(types, stated)
    if schema is not None:
        size, records = (sum(getattr(each, what) for each in stated if each) for what in ("bytes", "records"))
        at_once = parsed_at_once(size, records, large=_LARGE)

        def known(found: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(_known_value(found, name, kind, shapes, with_shapes) for name, kind in types.items())

        return parsed_fields(examples, schema, at_once, known).prefetch(tf.data.AUTOTUNE)

    def unknown(found: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_value(found, name, kind, with_shapes) for name, kind in types.items())

    return parsed_fields(examples, schema_of(types, shapes=with_shapes), finish=unknown).prefetch(tf.data.AUTOTUNE)


def _payloads(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        folder, _, name = path.rpartition("/")
        with files_at(folder, Read()).stream(name) as stream:
            yield from (payload for _, payload in frames(stream, path))


def _known(
    types: Mapping[str, FieldType], stated: Sequence[Stated | None]
) -> tuple[Schema | None, Mapping[str, Shape]]:
    """The dense schema of all files, if they state one; and the shapes of their arrays."""
    shapes = [each.shapes for each in stated if each is not None and each.fields.items() >= types.items()]
    if not shapes or len(shapes) < len(stated) or any(each != shapes[0] for each in shapes) or shapes[0] is None:
        return None, {}
    return known_schema(types, shapes[0]), shapes[0]


def _known_value(
    found: Mapping[str, Any], name: str, kind: FieldType, shapes: Mapping[str, Shape], with_shapes: bool
) -> Any:
    """Of one record, or of a batch of them."""
    value = found[EXACT.format(name) if kind is FieldType.TYPE_DOUBLE else name]
    if kind.is_array and with_shapes:
        return tf.reshape(value, (-1, *shapes[name]) if value.shape.rank == 2 else shapes[name])
    return value


def _value(found: Mapping[str, Any], name: str, kind: FieldType, with_shapes: bool) -> Any:
    value = found[name]
    if kind is FieldType.TYPE_DOUBLE:
        # The rounded number behind the exact one: files of other writers have only that.
        return tf.concat([found[EXACT.format(name)], tf.cast(value, tf.float64)[tf.newaxis]], 0)[0]
    if kind.is_array and with_shapes:
        shape = found[SHAPE.format(name)]  # empty where another writer wrote the file
        return tf.reshape(value, tf.cond(tf.size(shape) > 0, lambda: shape, lambda: tf.constant([-1], tf.int64)))
    return value
