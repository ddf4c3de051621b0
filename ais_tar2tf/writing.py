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
from ais_tar2tf.export.framing import frame
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.request import check_names
from ais_tar2tf.export.run import Target, export_events
from ais_tar2tf.export.shard_units import Event, ShardRead, Units
from ais_tar2tf.export.splits import route_of
from ais_tar2tf.export.work import Place, WorkFolder
from ais_tar2tf.options import MIB
from ais_tar2tf.progress import progress_for

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["write_dataset"]

_FORMATS = ("tfrecord", "array_record")
_NO_IDENTITY = ("", "", "", None)


def write_dataset(
    dataset: tf.data.Dataset,
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
    (`value`), or serialized Examples: single strings that parse as such are written as they are. What a dataset
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
    target = Target(
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
        return _events(dataset, format)

    return export_events(target, events, Account(), progress_for(split, 1, progress))


def _events(dataset: tf.data.Dataset, kind: str) -> Iterator[Event]:
    observed, stats, begin = Observed(), Stats(), 0
    for payloads in _batches(dataset):
        observed.examples(payloads)
        units = list(map(frame, payloads)) if kind == "tfrecord" else payloads
        numbers = range(begin, begin + len(units))
        yield Units(0, 0, numbers, list(map(len, units)), b"".join(units), _NO_IDENTITY)
        begin += len(units)
    stats.records_read = stats.records_emitted = begin
    yield ShardRead(0, "", _NO_IDENTITY, stats, [observed])


def _batches(dataset: tf.data.Dataset) -> Iterator[list[bytes]]:
    """Serialized elements, about a megabyte at once."""
    batch: list[bytes] = []
    size = 0
    for element in dataset.as_numpy_iterator():
        payload = _serialized(element)
        batch.append(payload)
        size += len(payload)
        if size >= MIB:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _serialized(element: Any) -> bytes:
    if isinstance(element, bytes) and _is_example(element):
        return element
    return features.encode(dict(_named("", element)))


def _is_example(data: bytes) -> bool:
    try:
        return bool(features.decode(data))
    except SchemaError:
        return False


def _named(prefix: str, element: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a nest, by their path in it."""
    if isinstance(element, Mapping):
        parts = element.items()
    elif isinstance(element, tuple | list):
        parts = enumerate(element)
    else:
        yield prefix or "value", element
        return
    for key, value in parts:
        yield from _named(f"{prefix}/{key}" if prefix else str(key), value)
