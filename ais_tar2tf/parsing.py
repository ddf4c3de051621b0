"""A schema → what reads its tf.train.Examples: tf.io's parse spec, whole tensors, element specs; TFDS's features.

    dataset = tf.data.TFRecordDataset(files).map(parser(schema))

`tf.io.parse_example(batch, parse_spec(schema))` works on batches, too; `restore` then gives fields their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.features import FLAT_VALUES, INDICES, ROW_LENGTHS, SHAPE, VALUES
from ais_tar2tf.later import Later
from ais_tar2tf.schema import TEXTS, Field, Schema, has_shape_feature, ragged_rank, wire_dtype

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack tf.io's features
else:
    tf = Later("tensorflow")

__all__ = ["element_spec", "parse", "parse_spec", "parser", "restore", "tfds_features"]


def __dir__() -> list[str]:
    return sorted(__all__)


_WIRE = {"bytes": "string", "float32": "float32", "int64": "int64"}
# What decode_raw does not know is read as what has the same bytes.
_SAME_BYTES = {"uint32": "int32", "uint64": "int64"}


def parse_spec(schema: Schema) -> dict[str, Any]:
    """The features of `tf.io.parse_example` and `tf.io.parse_single_example`.

    A field of one shape is a FixedLenFeature. One whose length varies, or that is a number and may be absent, is a
    RaggedFeature: in a single example a list, as long as it is there. An absent file or text is the empty string.
    """
    spec: dict[str, Any] = {}
    for field in schema:
        spec.update(_spec_of(field))
    return spec


def _spec_of(field: Field) -> dict[str, Any]:
    name, wire = field.name, tf.as_dtype(_WIRE[wire_dtype(field)])
    if field.sparse:
        return _sparse_spec(field, wire)
    if field.ragged:
        lengths = [tf.io.RaggedFeature.RowLengths(ROW_LENGTHS.format(name, at)) for at in range(ragged_rank(field))]
        uniform = [tf.io.RaggedFeature.UniformRowLength(size) for size in _below_ragged(field)]
        return {name: _ragged_spec(wire, FLAT_VALUES.format(name), [*lengths, *uniform])}
    spec: dict[str, Any] = {}
    if has_shape_feature(field):
        spec[SHAPE.format(name)] = tf.io.FixedLenFeature((len(field.shape),), tf.int64, _default_shape(field))
    if _is_one_string(field):
        spec[name] = tf.io.FixedLenFeature((), tf.string, b"" if field.optional else None)
    elif None in field.shape or field.optional or _is_empty(field):
        spec[name] = _ragged_spec(wire, name, [])
    else:
        spec[name] = tf.io.FixedLenFeature(field.shape, wire)
    return spec


def _default_shape(field: Field) -> Any:
    return [0] * len(field.shape) if field.optional else None


def _below_ragged(field: Field) -> list[int]:
    """The sizes of a ragged field below its last level of varying length."""
    return [size or 0 for size in field.shape[ragged_rank(field) + 1 :]]


def _is_one_string(field: Field) -> bool:
    return field.is_file or field.encoding == "raw" or (field.dtype in TEXTS and not field.shape)


def _is_empty(field: Field) -> bool:
    """Whether no record has a value: TensorFlow takes a feature without one for an absent one."""
    return field.dense and 0 in field.shape and not _is_one_string(field)


def _ragged_spec(wire: Any, key: str, partitions: list[Any]) -> Any:
    return tf.io.RaggedFeature(wire, key, partitions, row_splits_dtype=tf.int64)


def _sparse_spec(field: Field, wire: Any) -> dict[str, Any]:
    keys = [INDICES.format(field.name, at) for at in range(len(field.shape))]
    if None not in field.shape:
        return {field.name: tf.io.SparseFeature(keys, VALUES.format(field.name), wire, list(field.shape))}
    values = {VALUES.format(field.name): _ragged_spec(wire, VALUES.format(field.name), [])}
    shape = {SHAPE.format(field.name): tf.io.FixedLenFeature((len(field.shape),), tf.int64, _default_shape(field))}
    return {**values, **{key: _ragged_spec(tf.int64, key, []) for key in keys}, **shape}


def parser(schema: Schema) -> Callable[[Any], dict[str, Any]]:
    """A function for `.map()` behind a TFRecordDataset: one serialized example, or a batch of them, into fields."""
    spec = parse_spec(schema)

    def parse_one(serialized: Any) -> dict[str, Any]:
        serialized = tf.convert_to_tensor(serialized)
        if serialized.shape.rank == 0:
            return restore(schema, tf.io.parse_single_example(serialized, spec))
        return restore(schema, tf.io.parse_example(serialized, spec), batch=True)

    return parse_one


def parse(schema: Schema, serialized: Any) -> dict[str, Any]:
    """The fields of one serialized example, or of a batch of them; files are still encoded."""
    return parser(schema)(serialized)


def restore(schema: Schema, parsed: Mapping[str, Any], *, batch: bool = False) -> dict[str, Any]:
    """What tf.io gave for `parse_spec`, as the schema's fields: their types and shapes, ragged and sparse tensors."""
    return {field.name: _restored(field, parsed, batch) for field in schema}


def _restored(field: Field, parsed: Mapping[str, Any], batch: bool) -> Any:
    if field.sparse and None in field.shape:
        return _restored_sparse(field, parsed, batch)
    value = parsed[field.name]
    if field.is_file:
        return value
    if field.encoding == "raw":
        return _restored_raw(field, value, parsed, batch)
    if field.ragged:
        return _restored_ragged(field, _cast(field, value), batch)
    if _is_empty(field):
        flat, rows = (value.flat_values, [value.nrows()]) if batch else (value, [])
        return tf.reshape(_cast(field, flat), (*rows, *field.shape))
    if field.sparse or None not in field.shape:
        return _cast(field, value)
    return _shaped(field, _cast(field, value), parsed, batch)


def _cast(field: Field, value: Any) -> Any:
    return value if field.dtype in TEXTS else tf.cast(value, field.dtype)


def _restored_ragged(field: Field, value: Any, batch: bool) -> Any:
    """Sizes that never vary belong to the flat values, not to the row lengths."""
    below = _below_ragged(field)
    if not below:
        return value
    lengths = value.nested_row_lengths()[: ragged_rank(field) + batch]
    return tf.RaggedTensor.from_nested_row_lengths(tf.reshape(value.flat_values, (-1, *below)), lengths)


def _shaped(field: Field, value: Any, parsed: Mapping[str, Any], batch: bool) -> Any:
    """Flat values in the field's shape; in a batch only the first size may vary."""
    if field.shape == (None,):
        return value
    if batch:
        return _shaped_batch(field, value)
    sizes = parsed[SHAPE.format(field.name)] if has_shape_feature(field) else _sizes(field)
    return tf.ensure_shape(tf.reshape(value, sizes), field.shape)


def _shaped_batch(field: Field, value: Any) -> Any:
    below = [size for size in field.shape[1:] if size is not None]
    if len(below) + 1 < len(field.shape):
        raise SchemaError(f"field {field.name!r} is {field.type_text}: parse one example at a time, then batch")
    rows = value.row_lengths() // int(np.prod(below))
    return tf.RaggedTensor.from_row_lengths(tf.reshape(value.flat_values, (-1, *below)), rows)


def _sizes(field: Field) -> list[int]:
    return [-1 if size is None else size for size in field.shape]


def _restored_raw(field: Field, value: Any, parsed: Mapping[str, Any], batch: bool) -> Any:
    dtype = np.dtype(field.dtype)
    name = "int64" if dtype.kind in "mM" else dtype.name
    flat = tf.io.decode_raw(value, _SAME_BYTES.get(name, name))
    flat = tf.bitcast(flat, name) if name in _SAME_BYTES else flat
    if None not in field.shape:
        absent = [-1] if field.optional else []  # an absent one is an empty list of them
        return tf.reshape(flat, (-1, *field.shape)) if batch or absent else tf.reshape(flat, field.shape)
    if batch:
        raise SchemaError(
            f"field {field.name!r} is {field.type_text} ({field.encoding}): parse one example at a time"
        )
    sizes = parsed[SHAPE.format(field.name)] if has_shape_feature(field) else _sizes(field)
    return tf.ensure_shape(tf.reshape(flat, sizes), field.shape)


def _restored_sparse(field: Field, parsed: Mapping[str, Any], batch: bool) -> Any:
    if batch:
        raise SchemaError(f"field {field.name!r} is {field.type_text}: parse one example at a time")
    name = field.name
    indices = tf.stack([parsed[INDICES.format(name, at)] for at in range(len(field.shape))], axis=1)
    return tf.SparseTensor(indices, _cast(field, parsed[VALUES.format(name)]), parsed[SHAPE.format(name)])


def element_spec(schema: Schema) -> dict[str, Any]:
    """The types and shapes of what `parser` gives of one example."""
    return {field.name: _element_of(field) for field in schema}


def _element_of(field: Field) -> Any:
    shape: Any = tf.TensorShape(field.shape)
    dtype = tf.string if field.is_file or field.dtype in TEXTS else _tensor_dtype(field)
    if field.is_file:
        return tf.TensorSpec((), tf.string)
    if field.sparse:
        return tf.SparseTensorSpec(shape, dtype)
    if field.ragged:
        rank = ragged_rank(field)
        return tf.RaggedTensorSpec([None] * (rank + 1) + _below_ragged(field), dtype, rank, tf.int64)
    if field.optional and not _is_one_string(field) and None not in field.shape:
        return tf.TensorSpec((None,), dtype)
    if field.optional and field.encoding == "raw" and None not in field.shape:
        return tf.TensorSpec((None, *field.shape), dtype)
    return tf.TensorSpec(shape, dtype)


def _tensor_dtype(field: Field) -> Any:
    dtype = np.dtype(field.dtype)
    return tf.int64 if dtype.kind in "mM" else tf.as_dtype(dtype.name)


def tfds_features(schema: Schema) -> Any:
    """The tfds.features.FeaturesDict that reads what the schema wrote (extra `tfds`).

    Files other than images are strings there; so is a label that is stored as text. A string or a number that may be
    absent is a sequence, empty where a record has none.

    Raises:
        SchemaError: TFDS has no feature for a field.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tfds") from error
    return tfds.features.FeaturesDict(
        {
            field.name: _tfds_optional(tfds, field, schema) if field.optional else _tfds_feature(tfds, field)
            for field in schema
        }
    )


def _tfds_optional(tfds: Any, field: Field, schema: Schema) -> Any:
    if _is_one_string(field) and field.encoding not in ("image", "raw"):
        return tfds.features.Tensor(shape=(None,), dtype=np.bytes_)
    if field.encoding == "list" and not field.shape:
        return tfds.features.Tensor(shape=(None,), dtype=np.dtype(field.dtype))
    images = [each.name for each in schema if each.encoding == "image" and each.optional]
    one = f"image={';'.join(images)}" if len(images) > 1 else ""
    rest = [each.name for each in schema if each.name not in images and not each.optional]
    cure = (
        f"fields={[one, *rest]} gives every record one image, as its file's bytes where they are of several formats"
        if one
        else f"fields={rest} leaves it out"
    )
    raise SchemaError(
        f"field {field.name!r} ({field}) is absent in some records, for which TFDS has no feature; {cure}, and "
        "t2t.tfds.builder(map=) can put a value into its place"
    )


def _tfds_feature(tfds: Any, field: Field) -> Any:
    features = tfds.features
    if field.sparse:
        raise SchemaError(f"field {field.name!r} is {field.type_text}, for which TFDS has no feature")
    if field.encoding == "image" and field.format in ("jpeg", "png") and field.dtype == "uint8":
        shape = field.shape or (None, None, None)
        return features.Image(shape=shape, encoding_format=field.format)
    if field.is_file or (field.dtype in TEXTS and not field.shape):
        return features.Text() if field.dtype == "string" else features.Tensor(shape=(), dtype=np.bytes_)
    dtype = np.dtype(np.bytes_) if field.dtype in TEXTS else np.dtype(field.dtype)
    if field.encoding == "raw":
        return features.Tensor(shape=field.shape, dtype=dtype, encoding=features.Encoding.BYTES)
    if not field.ragged:
        return features.Tensor(shape=field.shape, dtype=dtype)
    rank = ragged_rank(field)
    nested: Any = features.Tensor(shape=field.shape[rank + 1 :], dtype=dtype)
    for _ in range(rank + 1):
        nested = features.Sequence(nested)
    return nested
