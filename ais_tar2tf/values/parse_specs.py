"""Conversion of a schema to the objects that TensorFlow needs to read records written with this schema.

These objects are parse specs, parsers, element specs, and the features of TFDS.

    dataset = tf.data.TFRecordDataset(files).map(parser(schema))

To parse without `parser`, pass `parse_spec(schema)` to `tf.io.parse_example`. Then pass the parsed dict to `restore`,
which gives the fields their types and shapes. This module must not read files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.values.features import SHAPE
from ais_tar2tf.values.schema import (
    TEXT_DTYPES,
    Field,
    Schema,
    feature_names,
    has_shape_feature,
    ragged_rank,
    wire_dtype,
)

tf: Any = LazyModule("tensorflow")

__all__ = ["element_spec", "parse", "parse_spec", "parser", "restore", "tfds_features"]


def __dir__() -> list[str]:
    return sorted(__all__)


# `tf.io.decode_raw` cannot decode these types. It decodes their values as another type of the same size.
_SAME_BYTES = {"uint32": "int32", "uint64": "int64"}


def parse_spec(schema: Schema) -> dict[str, Any]:
    """Return the parse spec of a schema, for `tf.io.parse_example` and `tf.io.parse_single_example`.

    A field whose shape is always the same becomes a FixedLenFeature. A field whose length varies becomes a
    RaggedFeature, as does a number that may be absent. A file or text that may be absent is a FixedLenFeature whose
    default is the empty string. A sparse field of known shape becomes a SparseFeature.

    Args:
        schema: The schema of the examples.

    Returns:
        The features, such as `tf.io.FixedLenFeature`, by their names in the parsed dict.
    """
    return {name: feature for field in schema for name, feature in _features_of(field).items()}


def _features_of(field: Field) -> dict[str, Any]:
    name, dtype = field.name, tf.as_dtype(wire_dtype(field).replace("bytes", "string"))
    if field.sparse:
        return _sparse_spec(field, dtype)
    if field.ragged:
        values, *lengths = feature_names(field)
        partitions = [tf.io.RaggedFeature.RowLengths(key) for key in lengths]
        partitions += [tf.io.RaggedFeature.UniformRowLength(size) for size in _uniform_sizes(field)]
        return {name: _ragged_spec(dtype, values, partitions)}
    spec = _shape_spec(field) if has_shape_feature(field) else {}
    if _is_one_string(field):
        spec[name] = tf.io.FixedLenFeature((), tf.string, b"" if field.optional else None)
    elif None in field.shape or field.optional or _is_empty(field):
        spec[name] = _ragged_spec(dtype, name, [])
    else:
        spec[name] = tf.io.FixedLenFeature(field.shape, dtype)
    return spec


def _shape_spec(field: Field) -> dict[str, Any]:
    rank = len(field.shape)
    default = [0] * rank if field.optional else None
    return {SHAPE.format(field.name): tf.io.FixedLenFeature((rank,), tf.int64, default)}


def _uniform_sizes(field: Field) -> list[int]:
    """Return the fixed sizes at the end of a ragged field's shape: all sizes after the last one that varies."""
    return [size or 0 for size in field.shape[ragged_rank(field) + 1 :]]


def _is_one_string(field: Field) -> bool:
    """Return whether a value of the field is stored as a single string."""
    return field.is_file or field.encoding == "raw" or (field.dtype in TEXT_DTYPES and not field.shape)


def _is_empty(field: Field) -> bool:
    """Return whether the shape of a field has no room for values. TensorFlow treats an empty feature as absent."""
    return field.dense and 0 in field.shape and not _is_one_string(field)


def _ragged_spec(dtype: Any, key: str, partitions: list[Any]) -> Any:
    return tf.io.RaggedFeature(dtype, key, partitions, row_splits_dtype=tf.int64)


def _sparse_spec(field: Field, dtype: Any) -> dict[str, Any]:
    values, *indices, _ = feature_names(field)
    if None not in field.shape:
        return {field.name: tf.io.SparseFeature(indices, values, dtype, list(field.shape))}
    spec = {key: _ragged_spec(tf.int64, key, []) for key in indices}
    return {values: _ragged_spec(dtype, values, []), **spec, **_shape_spec(field)}


def parser(schema: Schema) -> Callable[[Any], dict[str, Any]]:
    """Return a function that parses serialized examples, for `.map()` after a TFRecordDataset.

    Args:
        schema: The schema of the examples.

    Returns:
        A function of a string tensor: one serialized example, or a vector of them. It returns the same as `parse`.
    """
    spec = parse_spec(schema)

    def parse_one(serialized: Any) -> dict[str, Any]:
        serialized = tf.convert_to_tensor(serialized)
        if serialized.shape.rank == 0:
            return restore(schema, tf.io.parse_single_example(serialized, spec))
        return restore(schema, tf.io.parse_example(serialized, spec), batch=True)

    return parse_one


def parse(schema: Schema, serialized: Any) -> dict[str, Any]:
    """Parse one serialized example, or a batch of them.

    Args:
        schema: The schema of the examples.
        serialized: A string tensor: a scalar for one example, or a vector for a batch.

    Returns:
        A dict of tensors by field name. The values of file fields, such as images, stay encoded strings.

    Raises:
        SchemaError: Examples are parsed as a batch, and the shapes of a field vary in a way that a batch cannot hold.
    """
    return parser(schema)(serialized)


def restore(schema: Schema, parsed: Mapping[str, Any], *, batch: bool = False) -> dict[str, Any]:
    """Give parsed values the types and shapes that their fields have in the schema.

    Args:
        schema: The schema of the examples.
        parsed: The dict that `tf.io.parse_example` or `tf.io.parse_single_example` returned for `parse_spec(schema)`.
        batch: Whether `parsed` is a batch, returned by `tf.io.parse_example`.

    Returns:
        A dict of dense, ragged and sparse tensors by field name. The values of file fields stay encoded strings.

    Raises:
        SchemaError: `parsed` is a batch, and the shapes of a field vary in a way that a batch cannot hold.
    """
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
    return value if field.dtype in TEXT_DTYPES else tf.cast(value, field.dtype)


def _restored_ragged(field: Field, value: Any, batch: bool) -> Any:
    """Reshape a ragged field's flat values, so that each has the fixed sizes at the end of the field's shape."""
    uniform = _uniform_sizes(field)
    if not uniform:
        return value
    lengths = value.nested_row_lengths()[: ragged_rank(field) + batch]
    return tf.RaggedTensor.from_nested_row_lengths(tf.reshape(value.flat_values, (-1, *uniform)), lengths)


def _shaped(field: Field, value: Any, parsed: Mapping[str, Any], batch: bool) -> Any:
    """Reshape the flat values of a field whose shape varies. In a batch, only the first size may vary."""
    if field.shape == (None,):
        return value
    if batch:
        return _shaped_batch(field, value)
    return tf.ensure_shape(tf.reshape(value, _sizes(field, parsed)), field.shape)


def _shaped_batch(field: Field, value: Any) -> Any:
    uniform = [size for size in field.shape[1:] if size is not None]
    if len(uniform) + 1 < len(field.shape):
        raise _batch_error(field)
    rows = value.row_lengths() // int(np.prod(uniform))
    return tf.RaggedTensor.from_row_lengths(tf.reshape(value.flat_values, (-1, *uniform)), rows)


def _batch_error(field: Field) -> SchemaError:
    return SchemaError(
        f"field {field.name!r} is {field.type_text} ({field.encoding}): parse one example at a time, then batch"
    )


def _sizes(field: Field, parsed: Mapping[str, Any]) -> Any:
    """Return the shape that a record states for its value; else the shape of the field, with -1 for varying sizes."""
    if has_shape_feature(field):
        return parsed[SHAPE.format(field.name)]
    return [-1 if size is None else size for size in field.shape]


def _restored_raw(field: Field, value: Any, parsed: Mapping[str, Any], batch: bool) -> Any:
    if None in field.shape:
        if batch:
            raise _batch_error(field)
        return tf.ensure_shape(tf.reshape(_decoded_raw(field, value), _sizes(field, parsed)), field.shape)
    if not batch and not field.optional:
        return tf.reshape(_decoded_raw(field, value), field.shape)
    # An optional field has one more dimension: its size is 0 if the value is absent, else 1.
    if batch and field.optional and 0 not in field.shape:
        values = tf.reshape(_decoded_raw(field, tf.strings.reduce_join(value)), (-1, *field.shape))
        value_bytes = np.dtype(field.dtype).itemsize * math.prod(size or 0 for size in field.shape)
        return tf.RaggedTensor.from_row_lengths(values, tf.cast(tf.strings.length(value), tf.int64) // value_bytes)
    return tf.reshape(_decoded_raw(field, value), (-1, *field.shape))


def _decoded_raw(field: Field, value: Any) -> Any:
    """Return the elements of raw arrays of equal size, in one more dimension than `value`."""
    dtype = np.dtype(field.dtype)
    name = "int64" if dtype.kind in "mM" else dtype.name
    flat = tf.io.decode_raw(value, _SAME_BYTES.get(name, name))
    return tf.bitcast(flat, name) if name in _SAME_BYTES else flat


def _restored_sparse(field: Field, parsed: Mapping[str, Any], batch: bool) -> Any:
    if batch:
        raise _batch_error(field)
    values, *keys, shape = feature_names(field)
    indices = tf.stack([parsed[key] for key in keys], axis=1)
    return tf.SparseTensor(indices, _cast(field, parsed[values]), parsed[shape])


def element_spec(schema: Schema) -> dict[str, Any]:
    """Return the `tf.TypeSpec` of each tensor that a `parser` returns for one example, by field name.

    Args:
        schema: The schema of the examples.
    """
    return {field.name: _element_of(field) for field in schema}


def _element_of(field: Field) -> Any:
    shape: Any = tf.TensorShape(field.shape)
    dtype = tf.string if field.is_file or field.dtype in TEXT_DTYPES else _tensor_dtype(field)
    if field.is_file:
        return tf.TensorSpec((), tf.string)
    if field.sparse:
        return tf.SparseTensorSpec(shape, dtype)
    if field.ragged:
        rank = ragged_rank(field)
        return tf.RaggedTensorSpec([None] * (rank + 1) + _uniform_sizes(field), dtype, rank, tf.int64)
    if field.optional and not _is_one_string(field) and None not in field.shape:
        return tf.TensorSpec((None,), dtype)
    if field.optional and field.encoding == "raw" and None not in field.shape:
        return tf.TensorSpec((None, *field.shape), dtype)
    return tf.TensorSpec(shape, dtype)


def _tensor_dtype(field: Field) -> Any:
    """Return the tensor type of a field's values. Dates and durations, which TensorFlow lacks, become int64."""
    dtype = np.dtype(field.dtype)
    return tf.int64 if dtype.kind in "mM" else tf.as_dtype(dtype.name)


def tfds_features(schema: Schema) -> Any:
    """Return the `tfds.features.FeaturesDict` that reads examples of a schema (needs the extra `tfds`).

    Files that are not images become strings, and so do labels that are stored as text. A string or a number that may
    be absent becomes a sequence, which is empty in a record without the field.

    Args:
        schema: The schema of the examples.

    Raises:
        SchemaError: TFDS has no feature for a field.
        MissingDependency: tensorflow_datasets is not installed.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tfds") from error
    features = {field.name: _tfds_feature(tfds.features, field, schema) for field in schema}
    return tfds.features.FeaturesDict(features)


def _tfds_optional(features: Any, field: Field, schema: Schema) -> Any:
    """Return the TFDS feature of an optional field; raise SchemaError, with advice, if TFDS has none."""
    if _is_one_string(field) and field.encoding not in ("image", "raw"):
        return features.Tensor(shape=(None,), dtype=np.bytes_)
    if field.encoding == "list" and not field.shape:
        return features.Tensor(shape=(None,), dtype=np.dtype(field.dtype))
    images = [other.name for other in schema if other.encoding == "image" and other.optional]
    any_image = f"image={';'.join(images)}" if len(images) > 1 else ""
    others = [other.name for other in schema if other.name not in images and not other.optional]
    advice = (
        f"fields={[any_image, *others]} gives every record one image, as the bytes of its file if the images "
        "have several formats"
        if any_image
        else f"fields={others} leaves it out"
    )
    raise SchemaError(
        f"field {field.name!r} ({field}) is absent in some records, for which TFDS has no feature; {advice}, and "
        "t2t.tfds.builder(map=) can put a value into its place"
    )


def _tfds_feature(features: Any, field: Field, schema: Schema) -> Any:
    if field.optional:
        return _tfds_optional(features, field, schema)
    if field.sparse:
        raise SchemaError(f"field {field.name!r} is {field.type_text}, for which TFDS has no feature")
    if field.encoding == "image" and field.format in ("jpeg", "png") and field.dtype == "uint8":
        shape = field.shape or (None, None, None)
        return features.Image(shape=shape, encoding_format=field.format)
    if field.is_file or (field.dtype in TEXT_DTYPES and not field.shape):
        return features.Text() if field.dtype == "string" else features.Tensor(shape=(), dtype=np.bytes_)
    dtype = np.dtype(np.bytes_) if field.dtype in TEXT_DTYPES else np.dtype(field.dtype)
    if field.encoding == "raw":
        return features.Tensor(shape=field.shape, dtype=dtype, encoding=features.Encoding.BYTES)
    if not field.ragged:
        return features.Tensor(shape=field.shape, dtype=dtype)
    rank = ragged_rank(field)
    nested: Any = features.Tensor(shape=field.shape[rank + 1 :], dtype=dtype)
    for _ in range(rank + 1):
        nested = features.Sequence(nested)
    return nested
