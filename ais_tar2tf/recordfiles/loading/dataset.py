"""Build a `tf.data.Dataset` of known length that reads record files in parallel and parses records in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.errors import Tar2TFError, for_tensorflow
from ais_tar2tf.options import KIB, MIB, SHARED_SEED
from ais_tar2tf.recordfiles.batches import payload_batches
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.recordfiles.loading.random_access import RecordSequence
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.values.parse_specs import parser
from ais_tar2tf.values.schema import Field, Schema

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "READ_BUFFER",
    "SHUFFLED_FILES",
    "TURN",
    "FileOrder",
    "LoadRequest",
    "build_dataset",
    "parsed_at_once",
    "parsed_fields",
    "read_files",
    "read_payloads",
]

READ_BUFFER = 8 * MIB  # for each file; TensorFlow's performance guide advises some megabytes
_PARSED_BYTES = 1 * MIB  # of records that are parsed together, because a batch costs little more than a record
_MAX_PARSED = 256  # records that are parsed together
_LARGE = 16 * KIB  # average bytes of a record, above which records are parsed one by one: unbatching copies them
SHUFFLED_FILES = 16  # files that are read at once when shuffled, as TFDS does
TURN = 16  # consecutive records of one file, before the next file has its turn
_NO_RECORDS = Schema((Field("__key__", "string"),))  # the schema of an export without records and without a schema


@dataclass(frozen=True)
class LoadRequest:
    """The records that a dataset or a loop reads, and their order."""

    manifest: Manifest
    records: RecordSequence
    url: Callable[[str], str]  # from the name of a file to its path or URL
    local: bool
    open_tar: Callable[[Sequence[str]], Any]  # opens files of tars, by their names, as a `Source`
    check: Callable[[], object]  # raises if a local file was replaced after it was loaded
    window: int  # of the shuffle, in records; 0: records are not shuffled
    seed: int | None
    batch: int | None
    drop_remainder: bool
    interleave: int | None  # files that are read at once
    epochs: int = 1  # -1: without end
    start_at: int = 0  # the number of the first record, counted through all epochs
    sharded: bool = False  # the records are one host's share, which tf.data must not split again
    counted: bool = True  # the dataset has all records; False where several workers divide them

    @property
    def in_turns(self) -> bool:
        """Whether several files can be read in turns, because TensorFlow opens the files itself."""
        return self.local and self.manifest.record_format.read_by_tensorflow

    @property
    def in_order(self) -> bool:
        """Whether the records are read in the order of their numbers."""
        return not self.window and self.interleave in (None, 1)

    @property
    def length(self) -> int:
        """The number of records that are read; -1 if there is no end."""
        if self.epochs < 0 and len(self.records):
            return -1
        return abs(self.epochs) * len(self.records) - self.start_at

    def from_start(self) -> LoadRequest:
        """Return an equivalent request that does not read the records before `start_at`, if the order allows it."""
        if self.epochs != 1 or not self.in_order:
            return self
        return replace(self, records=self.records.skip(self.start_at), start_at=0)

    def cut(self, dataset: Any) -> Any:
        """Return a dataset of all epochs, given that of one epoch, without the records before `start_at`."""
        repeated = dataset if self.epochs == 1 else dataset.repeat(self.epochs)
        return repeated.skip(self.start_at) if self.start_at else repeated


def build_dataset(request: LoadRequest) -> tf.data.Dataset[Any]:
    """Return the dataset that a request describes."""
    import tensorflow as tf

    from ais_tar2tf.tfdata.iterators import ErrorTranslatingDataset
    from ais_tar2tf.tfdata.tf import has_several_workers

    if request.seed is None and has_several_workers():
        request = replace(request, seed=SHARED_SEED)
    is_tar = not request.manifest.record_format.holds_examples and request.records.ranges
    dataset = _tar_records(request) if is_tar else _parsed_examples(request)
    if request.sharded:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return ErrorTranslatingDataset(dataset, request.check)


def _parsed_examples(request: LoadRequest) -> tf.data.Dataset[Any]:
    """Return the dataset of parsed tf.train.Examples, or of batches of them."""
    import tensorflow as tf

    order = FileOrder(cycle=request.interleave, shuffled=request.window > 0, seed=request.seed)
    examples = (
        read_files(request.records, request.url, order)
        if request.in_turns
        else read_payloads(request.records.payloads)
    )
    if request.window:
        examples = examples.shuffle(request.window, request.seed)
    examples = request.cut(examples)
    schema = request.records.schema or _NO_RECORDS
    entries = request.manifest.splits.values()
    at_once = parsed_at_once(sum(entry.bytes for entry in entries), sum(entry.records for entry in entries))
    count = request.length
    if request.batch is None:
        parsed = parsed_fields(examples, schema, at_once)
    else:
        by_batches = _by_batches(schema, at_once)
        if not by_batches:
            examples = parsed_fields(examples, schema)
        parsed = examples.batch(request.batch, drop_remainder=request.drop_remainder)
        if by_batches:
            parsed = parsed.map(parser(schema), num_parallel_calls=tf.data.AUTOTUNE)
        full, rest = divmod(count, request.batch)
        count = full + (rest > 0 and not request.drop_remainder) if count >= 0 else count
    if request.counted:
        parsed = parsed.apply(tf.data.experimental.assert_cardinality(count))
    return parsed.prefetch(tf.data.AUTOTUNE)


def parsed_at_once(size: int, records: int, *, large: int = _LARGE) -> int:
    """Return how many records to parse together.

    Args:
        size: The bytes of all files.
        records: The number of records in them.
        large: Average bytes of a record, above which records are parsed one by one.
    """
    each = size // max(1, records)
    return 1 if each > large else min(_MAX_PARSED, _PARSED_BYTES // max(1, each))


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """The order in which the records of several files are read."""

    cycle: int | None = None  # files that are read in turns; None: 1, or `SHUFFLED_FILES` when shuffled
    turn: int = TURN  # consecutive records of one file, before the next file has its turn
    shuffled: bool = False  # the files are shuffled, not their records
    seed: int | None = None
    reshuffled: bool = True  # each epoch has another order of files
    deterministic: bool = True
    sort: Callable[[list[dict[str, Any]]], Sequence[dict[str, Any]]] | None = None
    """Sorts the files, which are given as dicts with `filename`, `skip` and `take` (numbers of records)."""


def read_files(records: RecordSequence, url: Callable[[str], str], order: FileOrder) -> tf.data.Dataset[Any]:
    """Return the dataset of serialized Examples in local TFRecord files. Its errors name the file and the offset."""
    import tensorflow as tf

    from ais_tar2tf.recordfiles.loading.faults import DiagnosedTFRecords, NamedFile

    whole = {url(file.name) for file, start, stop in records.spans() if stop - start == file.records}
    spans = [
        {"filename": url(file.name), "skip": start, "take": stop - start} for file, start, stop in records.spans()
    ]
    spans = spans if order.sort is None else list(order.sort(spans))
    paths = tf.constant([span["filename"] for span in spans], tf.string)
    skips, takes = (tf.constant([span[name] for span in spans], tf.int64) for name in ("skip", "take"))
    files = tf.data.Dataset.from_tensor_slices((paths, skips, takes))
    cycle = order.cycle or (SHUFFLED_FILES if order.shuffled else 1)
    if order.shuffled:
        files = files.shuffle(max(1, len(spans)), order.seed, reshuffle_each_iteration=order.reshuffled)
    named = [NamedFile(url(file.name), file.records) for file, _, _ in records.spans()]
    if not order.shuffled and cycle == 1 and all(span["filename"] in whole for span in spans):
        return DiagnosedTFRecords(tf.data.TFRecordDataset(paths, buffer_size=READ_BUFFER), named)
    interleaved = files.interleave(
        lambda path, skip=0, take=0: tf.data.TFRecordDataset(path, buffer_size=READ_BUFFER).skip(skip).take(take),
        cycle_length=max(1, min(cycle, len(spans))),
        block_length=order.turn,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=order.deterministic,
    )
    return DiagnosedTFRecords(interleaved, named)


def parsed_fields(
    examples: tf.data.Dataset[Any],
    schema: Schema,
    at_once: int = 1,
    finish: Callable[[dict[str, Any]], Any] | None = None,
) -> tf.data.Dataset[Any]:
    """Return the dataset of parsed Examples.

    Calling a function for each record costs more than parsing, so records are parsed in batches if all fields have
    fixed shapes.

    Args:
        examples: The dataset of serialized Examples.
        schema: The fields to parse.
        at_once: How many Examples to parse together.
        finish: Called in the graph with the parsed fields as a dict; returns the element of the dataset. If `at_once`
            is over 1, it must accept the fields of a batch, and those of a record.
    """
    import tensorflow as tf

    parse = parser(schema)

    def finished(serialized: Any) -> Any:
        fields = parse(serialized)
        return fields if finish is None else finish(fields)

    if _by_batches(schema, at_once):
        return examples.batch(at_once).map(finished, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    return examples.map(finished, num_parallel_calls=tf.data.AUTOTUNE)


def _by_batches(schema: Schema, at_once: int) -> bool:
    """Return whether to parse in batches. TensorFlow's unbatch crashes on fields of size 0, so these are excluded."""
    return at_once > 1 and all(field.dense and 0 not in field.shape for field in schema)


def read_payloads(payloads: Callable[[], Iterator[bytes]]) -> tf.data.Dataset[Any]:
    """Return the dataset of payloads from files that TensorFlow cannot open, such as ArrayRecord files and URLs.

    `payloads` is called for each epoch. Its payloads are passed to TensorFlow in batches.
    """
    import tensorflow as tf

    def arrays() -> Iterator[Any]:
        try:
            for batch in payload_batches(payloads(), _MAX_PARSED):
                yield np.array(batch, dtype=object)
        except Tar2TFError as error:
            raise for_tensorflow(error) from None

    return tf.data.Dataset.from_generator(arrays, output_signature=tf.TensorSpec((None,), tf.string)).unbatch()


def _tar_records(request: LoadRequest) -> tf.data.Dataset[Any]:
    """Return the dataset of records in tars, which are opened as a `Source`, in the order of the ranges."""
    import tensorflow as tf

    fields = [
        f"{field.name}?" if field.optional else field.name
        for field in request.records.schema
        if field.name not in KEY_AND_SHARD
    ]
    dataset: Any = None
    for part in request.records.ranges:
        spans = list(request.records.in_range(part).spans())
        shards = request.open_tar([file.name for file, _, _ in spans])
        each = shards.select(*fields).dataset().skip(spans[0][1]).take(part.stop - part.start)
        dataset = each if dataset is None else dataset.concatenate(each)
    if request.window:
        dataset = dataset.shuffle(request.window, request.seed)
    dataset = request.cut(dataset).apply(tf.data.experimental.assert_cardinality(request.length))
    if request.batch is None:
        return dataset
    return dataset.batch(request.batch, drop_remainder=request.drop_remainder)
