"""The reader of record files: a dataset of tuples of tensors, parsed many at once where shapes are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.options import KIB, Read
from ais_tar2tf.recordfiles.formats.framing import read_frames
from ais_tar2tf.recordfiles.loading.dataset import READ_BUFFER, parsed_at_once, parsed_fields, read_payloads
from ais_tar2tf.recordfiles.loading.faults import DiagnosedTFRecords, NamedFile
from ais_tar2tf.recordfiles.loading.stored_files import files_at
from ais_tar2tf.stores import split_url
from ais_tar2tf.tfrecorder.config import StoredConfig
from ais_tar2tf.tfrecorder.helpers.fields import EXACT, FieldType, Shape, dense_schema, schema_of
from ais_tar2tf.values.features import SHAPE
from ais_tar2tf.values.schema import Schema

tf: Any = LazyModule("tensorflow")

__all__ = ["read_examples"]

# Average bytes of a record, above which records are parsed one by one. The default is lower, but here parsing them
# one by one copies the arrays, too.
_LARGE = 256 * KIB


def read_examples(
    paths: Sequence[str],
    types: Mapping[str, FieldType],
    configs: Sequence[StoredConfig | None] = (),
    *,
    with_shapes: bool = False,
) -> Any:
    """Return a dataset of tuples with a value for each field, in the order of the files and of the fields.

    Args:
        paths: The paths or URLs of the files.
        types: The types of the fields.
        configs: The configurations next to the files. If each array has one shape in all files, many records are
            parsed at once.
        with_shapes: Whether arrays get their shapes; otherwise they are flat.
    """
    if all(split_url(path)[0] == "file" for path in paths):
        local = [split_url(path)[2] for path in paths]
        read = tf.data.TFRecordDataset(local, buffer_size=READ_BUFFER)
        examples: Any = DiagnosedTFRecords(read, [NamedFile(path) for path in local])
    else:
        examples = read_payloads(lambda: _payloads(paths))
    schema, shapes = _dense_schema_of(types, configs)
    if schema is not None:
        size, records = (sum(getattr(each, total) for each in configs if each) for total in ("bytes", "records"))
        at_once = parsed_at_once(size, records, large=_LARGE)

        def dense_values(parsed: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(_dense_value(parsed, name, kind, shapes, with_shapes) for name, kind in types.items())

        return parsed_fields(examples, schema, at_once, dense_values).prefetch(tf.data.AUTOTUNE)

    def values(parsed: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_value(parsed, name, kind, with_shapes) for name, kind in types.items())

    return parsed_fields(examples, schema_of(types, shapes=with_shapes), finish=values).prefetch(tf.data.AUTOTUNE)


def _payloads(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        folder, _, name = path.rpartition("/")
        with files_at(folder, Read()).stream(name) as stream:
            yield from (payload for _, payload in read_frames(stream, path))


def _dense_schema_of(
    types: Mapping[str, FieldType], configs: Sequence[StoredConfig | None]
) -> tuple[Schema | None, Mapping[str, Shape]]:
    """Return the dense schema of all files, if their configurations state one, and the shapes of their arrays."""
    shapes = [each.shapes for each in configs if each is not None and each.fields.items() >= types.items()]
    if not shapes or len(shapes) < len(configs) or any(each != shapes[0] for each in shapes) or shapes[0] is None:
        return None, {}
    return dense_schema(types, shapes[0]), shapes[0]


def _dense_value(
    parsed: Mapping[str, Any], name: str, kind: FieldType, shapes: Mapping[str, Shape], with_shapes: bool
) -> Any:
    """Return the value of a field of one record or of a batch."""
    value = parsed[EXACT.format(name) if kind is FieldType.TYPE_DOUBLE else name]
    if kind.is_array and with_shapes:
        return tf.reshape(value, (-1, *shapes[name]) if value.shape.rank == 2 else shapes[name])
    return value


def _value(parsed: Mapping[str, Any], name: str, kind: FieldType, with_shapes: bool) -> Any:
    value = parsed[name]
    if kind is FieldType.TYPE_DOUBLE:
        # Take the exact number if there is one. Files of other writers have only the rounded number.
        return tf.concat([parsed[EXACT.format(name)], tf.cast(value, tf.float64)[tf.newaxis]], 0)[0]
    if kind.is_array and with_shapes:
        shape = parsed[SHAPE.format(name)]  # empty in files of other writers
        return tf.reshape(value, tf.cond(tf.size(shape) > 0, lambda: shape, lambda: tf.constant([-1], tf.int64)))
    return value
