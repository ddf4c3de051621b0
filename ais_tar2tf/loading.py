"""Record files → tf.data.Dataset: read in parallel, parsed in batches, of known length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.errors import ExportError
from ais_tar2tf.export.manifest import Manifest
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.shelf import Records
from ais_tar2tf.options import MIB
from ais_tar2tf.schema import Schema

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["FileOrder", "LoadRequest", "build_dataset", "parse_spec", "parsed_fields", "read_files", "read_payloads"]

_READ_BUFFER = 8 * MIB  # of one file; TensorFlow's performance guide advises some megabytes
_PARSED_BYTES = 1 * MIB  # parsed at once: a batch costs little more than a record
_MOST_PARSED = 256  # the same in records
_SHUFFLED_FILES = 16  # read at once when shuffled, as TFDS does
_TURN = 16  # records of one file before the next one's turn


@dataclass(frozen=True)
class LoadRequest:
    manifest: Manifest
    records: Records
    url: Callable[[str], str]
    local: bool
    open_tar: Callable[[Sequence[str]], Any]
    window: int
    seed: int | None
    batch: int | None
    drop_remainder: bool
    interleave: int | None


def parse_spec(observed: Observed) -> dict[str, Any]:
    """What tf.io.parse_example needs: one value, a vector, or a ragged row of values, for each feature."""
    import tensorflow as tf

    kinds = {"bytes": (tf.string, b""), "float": (tf.float32, 0.0), "int64": (tf.int64, 0)}
    spec: dict[str, Any] = {}
    for name, seen in observed.features.items():
        dtype, empty = kinds[seen.kind]
        always = seen.records == observed.records
        if seen.least == seen.most == 1:
            spec[name] = tf.io.FixedLenFeature((), dtype, None if always else empty)
        elif seen.least == seen.most and always:
            spec[name] = tf.io.FixedLenFeature((seen.most,), dtype)
        else:
            spec[name] = tf.io.RaggedFeature(dtype)
    return spec


def build_dataset(request: LoadRequest) -> tf.data.Dataset:
    """Serialized Examples, or a tar's records, as the request wants them."""
    import tensorflow as tf

    if request.manifest.format == "tar":
        return _of_tar(request)
    whole = request.local and request.manifest.format == "tfrecord"
    order = FileOrder(cycle=request.interleave, shuffled=request.window > 0, seed=request.seed)
    examples = read_files(request.records, request.url, order) if whole else read_payloads(request.records)
    if request.window:
        examples = examples.shuffle(request.window, request.seed)
    spec = parse_spec(request.records.observed)

    def parse(batch: Any) -> Any:
        return tf.io.parse_example(batch, spec)

    count = len(request.records)
    if request.batch is not None:
        batches = examples.batch(request.batch, drop_remainder=request.drop_remainder)
        parsed = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        full, rest = divmod(count, request.batch)
        count = full + (rest > 0 and not request.drop_remainder)
    else:
        parsed = examples.batch(_parsed_at_once(request.manifest)).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        parsed = parsed.unbatch()
    return parsed.apply(tf.data.experimental.assert_cardinality(count)).prefetch(tf.data.AUTOTUNE)


def _parsed_at_once(manifest: Manifest) -> int:
    entries = manifest.splits.values()
    records = sum(entry.records for entry in entries)
    size = sum(entry.bytes for entry in entries) // max(1, records)
    return max(1, min(_MOST_PARSED, _PARSED_BYTES // max(1, size)))


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """In which order the records of several files come."""

    cycle: int | None = None  # files read at once, in turns; None: one in order, 16 when shuffled
    turn: int = _TURN  # records of one file before the next one's turn
    shuffled: bool = False
    seed: int | None = None
    reshuffled: bool = True  # in each epoch
    deterministic: bool = True
    sort: Callable[[list[dict[str, Any]]], Sequence[dict[str, Any]]] | None = None  # of dicts: filename, skip, take


def read_files(records: Records, url: Callable[[str], str], order: FileOrder) -> Any:
    """The serialized Examples of local TFRecord files."""
    import tensorflow as tf

    spans = [
        {"filename": url(file.name), "skip": start, "take": stop - start} for file, start, stop in records.spans()
    ]
    spans = list(order.sort(spans)) if order.sort is not None else spans
    paths = tf.constant([span["filename"] for span in spans], tf.string)
    skips, takes = (tf.constant([span[name] for span in spans], tf.int64) for name in ("skip", "take"))
    files = tf.data.Dataset.from_tensor_slices((paths, skips, takes))
    cycle = order.cycle or (_SHUFFLED_FILES if order.shuffled else 1)
    if order.shuffled:
        files = files.shuffle(max(1, len(spans)), order.seed, reshuffle_each_iteration=order.reshuffled)
    return files.interleave(
        lambda path, skip, take: tf.data.TFRecordDataset(path, buffer_size=_READ_BUFFER).skip(skip).take(take),
        cycle_length=max(1, min(cycle, len(spans))),
        block_length=order.turn,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=order.deterministic,
    )


def parsed_fields(examples: Any, schema: Schema, at_once: int = _MOST_PARSED) -> Any:
    """Serialized Examples as dicts of a schema's fields, parsed many at once."""
    import tensorflow as tf

    from ais_tar2tf.parsing import parse_spec as spec_of
    from ais_tar2tf.parsing import restore

    spec = spec_of(schema)
    return (
        examples.batch(at_once)
        .map(lambda batch: tf.io.parse_example(batch, spec), num_parallel_calls=tf.data.AUTOTUNE)
        .unbatch()
        .map(lambda parsed: restore(schema, parsed), num_parallel_calls=tf.data.AUTOTUNE)
    )


def read_payloads(records: Records) -> Any:
    """ArrayRecord files and URLs, which TensorFlow does not open: read by us, handed over many at once."""
    import tensorflow as tf

    signature = tf.TensorSpec((None,), tf.string)
    return tf.data.Dataset.from_generator(lambda: _batches(records), output_signature=signature).unbatch()


def _batches(records: Records) -> Iterator[Any]:
    batch: list[bytes] = []
    size = 0
    for payload in records.payloads():
        batch.append(payload)
        size += len(payload)
        if size >= _PARSED_BYTES or len(batch) == _MOST_PARSED:
            yield np.array(batch, dtype=object)
            batch, size = [], 0
    if batch:
        yield np.array(batch, dtype=object)


def _of_tar(request: LoadRequest) -> tf.data.Dataset:
    import tensorflow as tf

    observed = request.records.observed
    fields = [
        name if seen.records == observed.records else f"{name}?"
        for name, seen in observed.features.items()
        if name != "__key__"
    ]
    dataset: Any = None
    for part in request.records.parts:
        spans = list(request.records.of_part(part).spans())
        shards = request.open_tar([file.name for file, _, _ in spans])
        each = shards.select(*fields).dataset().skip(spans[0][1]).take(part.stop - part.start)
        dataset = each if dataset is None else dataset.concatenate(each)
    if dataset is None:
        raise ExportError("there are no records in this split")
    if request.window:
        dataset = dataset.shuffle(request.window, request.seed)
    if request.batch is not None:
        return dataset.batch(request.batch, drop_remainder=request.drop_remainder)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(request.records)))
