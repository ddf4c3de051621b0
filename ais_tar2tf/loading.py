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

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["LoadRequest", "build_dataset", "parse_spec"]

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
    examples = _of_files(request) if whole else _of_payloads(request)
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


def _of_files(request: LoadRequest) -> tf.data.Dataset:
    import tensorflow as tf

    spans = [(request.url(file.name), start, stop - start) for file, start, stop in request.records.spans()]
    paths = tf.constant([path for path, *_ in spans], tf.string)
    skips, takes = (tf.constant([span[at] for span in spans], tf.int64) for at in (1, 2))
    files = tf.data.Dataset.from_tensor_slices((paths, skips, takes))
    cycle = request.interleave or (_SHUFFLED_FILES if request.window else 1)
    if request.window:
        files = files.shuffle(max(1, len(spans)), request.seed)
    return files.interleave(
        lambda path, skip, take: tf.data.TFRecordDataset(path, buffer_size=_READ_BUFFER).skip(skip).take(take),
        cycle_length=max(1, min(cycle, len(spans))),
        block_length=_TURN,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _of_payloads(request: LoadRequest) -> tf.data.Dataset:
    """ArrayRecord files and URLs, which TensorFlow does not open: read by us, handed over many at once."""
    import tensorflow as tf

    signature = tf.TensorSpec((None,), tf.string)
    return tf.data.Dataset.from_generator(lambda: _batches(request.records), output_signature=signature).unbatch()


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
