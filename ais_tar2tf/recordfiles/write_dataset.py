"""`t2t.write_dataset`: write a whole tf.data.Dataset to record files with a manifest, as an export does.

This module turns elements into serialized records. It must not write files: the package `export` writes and publishes
them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.base.monitoring.progress import progress_for
from ais_tar2tf.base.monitoring.stats import Account, Stats
from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.urls.locations import location_text, shown_location
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.recordfiles.batches import payload_batches
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE, bounds_of
from ais_tar2tf.recordfiles.export.journal import NO_IDENTITY, ResumePoint, WorkFolder
from ais_tar2tf.recordfiles.export.request import check_names
from ais_tar2tf.recordfiles.export.routing import route_of
from ais_tar2tf.recordfiles.export.run import export_events
from ais_tar2tf.recordfiles.export.shard_output import EncodedBatch, Event, ShardRead
from ais_tar2tf.recordfiles.export.split_statistics import SplitStatistics
from ais_tar2tf.recordfiles.export.target import ExportTarget
from ais_tar2tf.recordfiles.formats import all_formats, find_format
from ais_tar2tf.recordfiles.formats.base import RecordFormat
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.values import features
from ais_tar2tf.values.schema import Field, Schema, Sparse

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["write_dataset"]

# Numbers of these types are stored as number lists in a tf.train.Example. Only dense arrays of two or more dimensions
# are stored as their bytes instead.
_LISTED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32")
_KINDS = {"TensorSpec": "dense", "RaggedTensorSpec": "ragged", "SparseTensorSpec": "sparse"}


@known_options
def write_dataset(
    dataset: tf.data.Dataset[Any],
    out: str | os.PathLike[str],
    *,
    split: str = "train",
    shard_size: int | str | None = DEFAULT_SIZE,
    shard_records: int | None = None,
    format: str = "tfrecord",  # noqa: A002  # as Source.export has it
    name: str = "dataset",
    exists: str = "error",
    idx: bool = False,
    progress: bool | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> list[str]:
    """Write every element of a tf.data.Dataset to record files.

    Elements may be dicts, tuples, single tensors or serialized tf.train.Examples. The fields of nested dicts get
    names such as `image/raw`, the items of tuples get the names `0`, `1` and so on, and a single tensor gets the name
    `value`. If the elements are single strings, and the first element is a serialized tf.train.Example, all elements
    are written unchanged.

    `t2t.load` returns tensors of the same types and shapes, also ragged and sparse tensors. Dense arrays of two or
    more dimensions are stored as their bytes. If the dataset does not state how many dimensions a field has, the
    first element shows this number. A run that was interrupted cannot be resumed, because a dataset may have other
    elements when it is read again.

    Args:
        dataset: The dataset.
        out: The folder or URL of the files.
        split: The name of the split.
        shard_size: The largest size of a file, in bytes or as a text such as "100MB". A record that is larger gets
            a file of its own. None: no bound on the size.
        shard_records: The largest number of records in a file. If it is given without `shard_size`, there is no bound
            on the size. Default: no bound on the number.
        format: "tfrecord" or "array_record".
        name: The name of the export, with which the names of its files begin.
        exists: "error" refuses to write over an existing export; "replace" replaces it.
        idx: Also write DALI's index of each file.
        progress: Whether to show a progress bar. None shows a bar on a terminal or in a notebook, after two seconds.
        endpoint: The endpoint of the store, if the URL does not name it.
        token: A token for the store, or a function that returns one.

    Returns:
        The paths or URLs of the files.

    Raises:
        OptionError: An option has a wrong value.
        SchemaError: A field has a type that record files cannot store.
        ExportError: An export exists already, or a file cannot be written.
    """
    if not hasattr(dataset, "element_spec"):
        raise OptionTypeError(
            f"dataset is a tf.data.Dataset, not {shown_location(dataset)}: tf.data.Dataset.from_tensor_slices makes "
            "one of lists and arrays, and t2t.pack writes dicts of fields as tar shards"
        )
    check_names(name, exists)
    if exists == "resume":
        raise OptionError("a dataset can't be resumed: exists is 'error' or 'replace'")
    record_format = find_format(format)
    record_format.check_installed()
    if not record_format.holds_examples:
        possible = ", ".join(each.name for each in all_formats() if each.holds_examples)
        raise OptionError(f"format is one of {possible} for a dataset, not {format!r}")
    route = route_of(split)
    bounds = bounds_of(shard_size, shard_records, len(record_format.end))
    schema = _schema_of(dataset)
    target = ExportTarget(
        schema=schema,
        out=location_text(out),
        format=format,
        name=name,
        splits=route.names,
        bounds=bounds,
        exists=exists,
        resumable=False,
        index_files=idx,
        endpoint=endpoint,
        token=token,
        plan={"dataset": str(dataset.element_spec), "shard_size": bounds.size, "shard_records": bounds.records},
    )

    def events(_work: WorkFolder, _resume_at: Sequence[ResumePoint]) -> Generator[Event]:
        return _events(_payloads(dataset, schema), record_format)

    return export_events(target, events, Account(), progress_for(split, wanted=progress))


def _events(payloads: Iterator[bytes], record_format: RecordFormat) -> Generator[Event]:
    """Yield the events of an export whose only input shard is the dataset. `payloads` are its serialized records."""
    statistics, stats, begin = SplitStatistics(), Stats(), 0
    for batch in payload_batches(payloads):
        statistics.add_examples(batch)
        yield EncodedBatch.from_payloads(batch, record_format, begin)
        begin += len(batch)
    stats.records_read = stats.records_emitted = begin
    yield ShardRead(0, "", NO_IDENTITY, stats, [statistics])


def _payloads(dataset: tf.data.Dataset[Any], schema: Schema | None) -> Iterator[bytes]:
    """Yield each element as a serialized Example. If `schema` is None, nothing has to be serialized."""
    elements: Any = _with_sparse_parts(dataset).as_numpy_iterator()
    if schema is None:
        yield from elements
        return
    for element in elements:
        yield schema.encode({name: _as_list(value) for name, value in _named_leaves("", element)})


def _with_sparse_parts(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
    """Return the dataset with a `Sparse` (indices, values, shape) in place of each sparse tensor.

    TensorFlow's numpy iterator would make dense arrays of sparse tensors, and would fail on sparse text.
    """
    import tensorflow as tf

    spec = dataset.element_spec
    if not any(isinstance(leaf, tf.SparseTensorSpec) for _, leaf in _named_leaves("", spec)):
        return dataset

    def parts(value: Any) -> Any:
        sparse = isinstance(value, tf.SparseTensor)
        return Sparse(value.indices, value.values, value.dense_shape) if sparse else value

    def element(*values: Any) -> Any:
        is_unpacked = type(spec) is tuple  # Dataset.map passes a namedtuple as one argument
        return tf.nest.map_structure(parts, values if is_unpacked else values[0])

    return dataset.map(element)


def _as_list(value: Any) -> Any:
    """Return a ragged value as nested lists, and any other value unchanged."""
    return value.to_list() if hasattr(value, "to_list") else value


def _schema_of(dataset: tf.data.Dataset[Any]) -> Schema | None:
    """Return the schema of the elements, or None if the elements are serialized Examples."""
    import tensorflow as tf

    spec = dataset.element_spec
    first = functools.cache(lambda: _first_element(dataset))
    one_string = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0
    if one_string and _is_example(first().get("value", b"")):
        return None
    return Schema(tuple(_field(name, each, first) for name, each in _named_leaves("", spec)))


def _first_element(dataset: tf.data.Dataset[Any]) -> dict[str, Any]:
    """Return the leaves of the first element by name; an empty dict if the dataset is empty."""
    elements: Any = _with_sparse_parts(dataset.take(1)).as_numpy_iterator()
    return {name: value for element in elements for name, value in _named_leaves("", element)}


def _field(name: str, spec: Any, first: Callable[[], Mapping[str, Any]]) -> Field:
    shape, kind = getattr(spec, "shape", None), _KINDS.get(type(spec).__name__)
    if kind is None or shape is None:
        raise SchemaError(f"field {name!r} is {spec}: elements of that kind can't be stored")
    sizes = tuple(shape.as_list()) if shape.rank is not None else (None,) * _rank(name, first())
    dtype = "bytes" if spec.dtype.name == "string" else spec.dtype.name
    if kind != "dense":
        if dtype not in ("bytes", *_LISTED):
            raise SchemaError(
                f"field {name!r} is {spec}: lists of that would not be exact; cast it, or make it dense"
            )
        return Field(name, dtype, sizes, ragged=kind == "ragged", sparse=kind == "sparse")
    listed = dtype == "bytes" or (len(sizes) < 2 and dtype in _LISTED)
    return Field(name, dtype, sizes, "list" if listed else "raw")


def _rank(name: str, first: Mapping[str, Any]) -> int:
    if name not in first:
        raise SchemaError(f"field {name!r} has no known number of dimensions, and there is no element that shows it")
    value = first[name]
    return len(value.dense_shape) if hasattr(value, "dense_shape") else np.ndim(value)


def _is_example(data: bytes) -> bool:
    try:
        return bool(features.decode(data))
    except SchemaError:
        return False


def _named_leaves(prefix: str, element: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf) for each leaf of nested dicts and tuples. The name is the leaf's path, such as `image/raw`.

    An element that is itself a leaf has the name `value`. A `Sparse` is a leaf, although it is a tuple.
    """
    if isinstance(element, Mapping):
        parts = element.items()
    elif isinstance(element, tuple | list) and not hasattr(element, "dense_shape"):
        parts = enumerate(element)
    else:
        yield prefix or "value", element
        return
    for key, value in parts:
        yield from _named_leaves(f"{prefix}/{key}" if prefix else str(key), value)
