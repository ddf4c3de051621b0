"""t2t.write_dataset: a whole tf.data.Dataset into record files, as an export writes them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf import features
from ais_tar2tf.account import Account, Stats
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, bounds_of
from ais_tar2tf.export.formats import check_format, overhead_of
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.raw import Row, framed_rows
from ais_tar2tf.export.request import check_names
from ais_tar2tf.export.run import Target, export_events
from ais_tar2tf.export.shard_units import Event, ShardRead, Units
from ais_tar2tf.export.splits import route_of
from ais_tar2tf.export.work import Place, WorkFolder
from ais_tar2tf.locations import location_text, shown_location
from ais_tar2tf.nearest import known_options
from ais_tar2tf.options import MIB
from ais_tar2tf.progress import progress_for
from ais_tar2tf.schema import Field, Schema, Sparse
from ais_tar2tf.stores import TokenSource

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["write_dataset"]

_FORMATS = ("tfrecord", "array_record")
_LISTED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32")
_KINDS = {"TensorSpec": "dense", "RaggedTensorSpec": "ragged", "SparseTensorSpec": "sparse"}
_NO_IDENTITY = ("", "", "", None)


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
    """Write every element of a dataset into record files under `out`, a folder or a URL; gives the files.

    Elements are dicts (nested ones get names such as `image/raw`), tuples (named `0`, `1` …), single tensors
    (`value`), or serialized Examples: single strings are written as they are when the first one parses. Types and
    shapes come back as they are, ragged and sparse tensors too; arrays of two and more dimensions are stored as
    their bytes. Where the dataset does not say how many dimensions there are, its first element does. What a dataset
    would give when it is read again nobody knows, so a run that was killed starts over, and an output that is
    there is an error, or replaced by `exists="replace"`.
    """
    if not hasattr(dataset, "element_spec"):
        raise OptionTypeError(
            f"dataset is a tf.data.Dataset, not {shown_location(dataset)}: tf.data.Dataset.from_tensor_slices makes "
            "one of lists and arrays, and t2t.pack writes dicts of fields as tar shards"
        )
    check_names(name, exists)
    if exists == "resume":
        raise OptionError("a dataset can't be resumed: exists is 'error' or 'replace'")
    if check_format(format) not in _FORMATS:
        raise OptionError(f"format is one of {', '.join(_FORMATS)} for a dataset, not {format!r}")
    route = route_of(split)
    bounds = bounds_of(shard_size, shard_records, overhead_of(format))
    schema = _schema_of(dataset)
    target = Target(
        schema=schema,
        out=location_text(out),
        kind=format,
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

    def events(_work: WorkFolder, _done: Sequence[Place]) -> Iterator[Event]:
        return _events(_payloads(dataset, schema), format)

    return export_events(target, events, Account(), progress_for(split, wanted=progress))


def _events(payloads: Iterator[bytes], kind: str) -> Iterator[Event]:
    observed, stats, begin = Observed(), Stats(), 0
    for batch in _batches(payloads):
        observed.examples(batch)
        rows: list[Row] = [(payload,) for payload in batch]
        sizes = list(map(len, batch))
        if kind == "tfrecord":
            rows, sizes = framed_rows(rows, sizes)
        yield Units(0, 0, range(begin, begin + len(rows)), sizes, rows, _NO_IDENTITY)
        begin += len(rows)
    stats.records_read = stats.records_emitted = begin
    yield ShardRead(0, "", _NO_IDENTITY, stats, [observed])


def _batches(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    """About a megabyte at once."""
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        batch.append(payload)
        size += len(payload)
        if size >= MIB:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _payloads(dataset: tf.data.Dataset[Any], schema: Schema | None) -> Iterator[bytes]:
    elements: Any = _with_parts(dataset).as_numpy_iterator()
    for element in elements:
        yield (
            element if schema is None else schema.encode({name: _plain(value) for name, value in _named("", element)})
        )


def _with_parts(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
    """Sparse tensors as their parts: TensorFlow would hand them over as dense arrays, and sparse text not at all."""
    import tensorflow as tf

    spec = dataset.element_spec
    if not any(isinstance(leaf, tf.SparseTensorSpec) for _, leaf in _named("", spec)):
        return dataset

    def parts(value: Any) -> Any:
        sparse = isinstance(value, tf.SparseTensor)
        return Sparse(value.indices, value.values, value.dense_shape) if sparse else value

    def element(*values: Any) -> Any:
        return tf.nest.map_structure(parts, values if isinstance(spec, tuple) else values[0])

    return dataset.map(element)


def _plain(value: Any) -> Any:
    return value.to_list() if hasattr(value, "to_list") else value


def _schema_of(dataset: tf.data.Dataset[Any]) -> Schema | None:
    """What the elements are; None when they are serialized Examples."""
    import tensorflow as tf

    spec = dataset.element_spec
    first = functools.cache(lambda: _first(dataset))
    one_string = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0
    if one_string and _is_example(first().get("value", b"")):
        return None
    return Schema(tuple(_field(name, each, first) for name, each in _named("", spec)))


def _first(dataset: tf.data.Dataset[Any]) -> dict[str, Any]:
    """The leaves of the first element by name; none of an empty dataset."""
    elements: Any = _with_parts(dataset.take(1)).as_numpy_iterator()
    return {name: value for element in elements for name, value in _named("", element)}


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


def _named(prefix: str, element: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a nest, by their path in it."""
    if isinstance(element, Mapping):
        parts = element.items()
    elif isinstance(element, tuple | list) and not hasattr(element, "dense_shape"):
        parts = enumerate(element)
    else:
        yield prefix or "value", element
        return
    for key, value in parts:
        yield from _named(f"{prefix}/{key}" if prefix else str(key), value)
