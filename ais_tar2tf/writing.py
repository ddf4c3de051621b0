"""t2t.write_dataset: a whole tf.data.Dataset into record files, as an export writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf import features
from ais_tar2tf.account import Account, Stats
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, bounds_of
from ais_tar2tf.export.formats import check_format, overhead_of
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.raw import Row, framed_rows
from ais_tar2tf.export.request import check_names
from ais_tar2tf.export.run import Target, export_events
from ais_tar2tf.export.shard_units import Event, ShardRead, Units
from ais_tar2tf.export.splits import route_of
from ais_tar2tf.export.work import Place, WorkFolder
from ais_tar2tf.options import MIB
from ais_tar2tf.progress import progress_for
from ais_tar2tf.schema import Field, Schema

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["write_dataset"]

_FORMATS = ("tfrecord", "array_record")
_LISTED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32")
_NO_IDENTITY = ("", "", "", None)


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
    token: str | None = None,
) -> list[str]:
    """Write every element of a dataset into record files under `out`, a folder or a URL; gives the files.

    Elements are dicts (nested ones get names such as `image/raw`), tuples (named `0`, `1` …), single tensors
    (`value`), or serialized Examples: single strings are written as they are when the first one parses. Types and
    shapes come back as they are; arrays of two and more dimensions are stored as their bytes. What a dataset
    would give when it is read again nobody knows, so a run that was killed starts over, and an output that is
    there is an error, or replaced by `exists="replace"`.
    """
    check_names(name, exists)
    if exists == "resume":
        raise ValueError("a dataset can't be resumed: exists is 'error' or 'replace'")
    if check_format(format) not in _FORMATS:
        raise ValueError(f"format is one of {', '.join(_FORMATS)} for a dataset, not {format!r}")
    route = route_of(split)
    bounds = bounds_of(shard_size, shard_records, overhead_of(format))
    schema = _schema_of(dataset)
    target = Target(
        schema=schema,
        out=os.fspath(out),
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
    elements: Any = dataset.as_numpy_iterator()
    for element in elements:
        yield (
            element if schema is None else schema.encode({name: _plain(value) for name, value in _named("", element)})
        )


def _plain(value: Any) -> Any:
    return value.to_list() if hasattr(value, "to_list") else value


def _schema_of(dataset: tf.data.Dataset[Any]) -> Schema | None:
    """What the elements are; None when they are serialized Examples."""
    import tensorflow as tf

    spec = dataset.element_spec
    if isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0:
        first: Any = next(iter(dataset.take(1).as_numpy_iterator()), b"")
        if _is_example(first):
            return None
    return Schema(tuple(_field(name, each) for name, each in _named("", spec)))


def _field(name: str, spec: Any) -> Field:
    shape, kind = getattr(spec, "shape", None), type(spec).__name__
    if kind not in ("TensorSpec", "RaggedTensorSpec") or shape is None or shape.rank is None:
        raise SchemaError(f"field {name!r} is {spec}: its elements have no shape, so they can't be stored")
    sizes = tuple(shape.as_list())
    if spec.dtype.name == "string":
        return Field(name, "bytes", sizes, ragged=kind != "TensorSpec")
    if kind != "TensorSpec":
        return Field(name, spec.dtype.name, sizes, ragged=True)
    listed = len(sizes) < 2 and spec.dtype.name in _LISTED
    return Field(name, spec.dtype.name, sizes, "list" if listed else "raw")


def _is_example(data: bytes) -> bool:
    try:
        return bool(features.decode(data))
    except SchemaError:
        return False


def _named(prefix: str, element: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a nest, by their path in it."""
    if isinstance(element, Mapping):
        parts = element.items()
    elif isinstance(element, tuple | list) and not hasattr(element, "to_list"):
        parts = enumerate(element)
    else:
        yield prefix or "value", element
        return
    for key, value in parts:
        yield from _named(f"{prefix}/{key}" if prefix else str(key), value)
