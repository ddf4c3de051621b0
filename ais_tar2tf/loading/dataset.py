"""Record files → tf.data.Dataset[Any]: read in parallel, parsed in batches, of known length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.errors import Tar2TFError, for_tensorflow
from ais_tar2tf.export.manifest import Manifest
from ais_tar2tf.export.shelf import Records
from ais_tar2tf.options import KIB, MIB, SHARED_SEED
from ais_tar2tf.parsing import parser
from ais_tar2tf.records import NAMES
from ais_tar2tf.schema import Field, Schema

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

READ_BUFFER = 8 * MIB  # of one file; TensorFlow's performance guide advises some megabytes
_PARSED_BYTES = 1 * MIB  # parsed at once: a batch costs little more than a record
_MOST_PARSED = 256  # the same in records
_LARGE = 16 * KIB  # of a record; larger ones are parsed one by one, for taking a batch apart copies them
SHUFFLED_FILES = 16  # read at once when shuffled, as TFDS does
_NO_RECORDS = Schema((Field("__key__", "string"),))  # of files of which nobody said what would be in them
TURN = 16  # records of one file before the next one's turn


@dataclass(frozen=True)
class LoadRequest:
    manifest: Manifest
    records: Records
    url: Callable[[str], str]
    local: bool
    open_tar: Callable[[Sequence[str]], Any]
    check: Callable[[], object]  # raises when a local file is not the one any more that was loaded
    window: int
    seed: int | None
    batch: int | None
    drop_remainder: bool
    interleave: int | None
    epochs: int = 1  # -1: for ever
    start_at: int = 0  # the number of the first record in the order of all epochs
    split: bool = False  # among hosts: tf.data is not to split it once more
    counted: bool = True  # it gives all records; not so where workers share them

    @property
    def in_turns(self) -> bool:
        """Whether several files may be read at once: TensorFlow opens them by itself."""
        return self.local and self.manifest.format == "tfrecord"

    @property
    def in_order(self) -> bool:
        """Whether the records come in the order of their numbers."""
        return not self.window and self.interleave in (None, 1)

    @property
    def length(self) -> int:
        """The number of records in all epochs; -1: without end."""
        if self.epochs < 0 and len(self.records):
            return -1
        return abs(self.epochs) * len(self.records) - self.start_at

    def from_start(self) -> LoadRequest:
        """The same request; records before the first one that is wanted are not read where they come in order."""
        if self.epochs != 1 or not self.in_order:
            return self
        return replace(self, records=self.records.behind(self.start_at), start_at=0)

    def cut(self, dataset: Any) -> Any:
        """What of a dataset of one epoch is read: all epochs, from the first record on."""
        repeated = dataset if self.epochs == 1 else dataset.repeat(self.epochs)
        return repeated.skip(self.start_at) if self.start_at else repeated


def build_dataset(request: LoadRequest) -> tf.data.Dataset[Any]:
    """Build the dataset of a request: serialized Examples, or the records of tars."""
    import tensorflow as tf

    from ais_tar2tf.tfdata.iterating import OurDataset
    from ais_tar2tf.tfdata.workers import several_workers

    if request.seed is None and several_workers():
        request = replace(request, seed=SHARED_SEED)
    is_tar = request.manifest.format == "tar" and request.records.parts
    dataset = _of_tar(request) if is_tar else _of_examples(request)
    if not request.split:
        return OurDataset(dataset, request.check)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return OurDataset(dataset.with_options(options), request.check)


def _of_examples(request: LoadRequest) -> tf.data.Dataset[Any]:
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
    at_once = _of_manifest(request.manifest)
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


def _of_manifest(manifest: Manifest) -> int:
    entries = manifest.splits.values()
    return parsed_at_once(sum(entry.bytes for entry in entries), sum(entry.records for entry in entries))


def parsed_at_once(size: int, records: int, *, large: int = _LARGE) -> int:
    """How many records of files with so many bytes and records are best parsed at once; 1 where they are larger."""
    each = size // max(1, records)
    return 1 if each > large else min(_MOST_PARSED, _PARSED_BYTES // max(1, each))


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """In which order the records of several files come."""

    cycle: int | None = None  # files read at once, in turns; None: one in order, 16 when shuffled
    turn: int = TURN  # records of one file before the next one's turn
    shuffled: bool = False
    seed: int | None = None
    reshuffled: bool = True  # in each epoch
    deterministic: bool = True
    sort: Callable[[list[dict[str, Any]]], Sequence[dict[str, Any]]] | None = None  # of dicts: filename, skip, take


def read_files(records: Records, url: Callable[[str], str], order: FileOrder) -> tf.data.Dataset[Any]:
    """The serialized Examples of local TFRecord files; a damaged one is named with the offset."""
    import tensorflow as tf

    from ais_tar2tf.loading.faults import NamedFile, TFRecordFiles

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
        return TFRecordFiles(tf.data.TFRecordDataset(paths, buffer_size=READ_BUFFER), named)
    interleaved = files.interleave(
        lambda path, skip=0, take=0: tf.data.TFRecordDataset(path, buffer_size=READ_BUFFER).skip(skip).take(take),
        cycle_length=max(1, min(cycle, len(spans))),
        block_length=order.turn,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=order.deterministic,
    )
    return TFRecordFiles(interleaved, named)


def parsed_fields(
    examples: tf.data.Dataset[Any],
    schema: Schema,
    at_once: int = 1,
    finish: Callable[[dict[str, Any]], Any] | None = None,
) -> tf.data.Dataset[Any]:
    """Serialized Examples as dicts of a schema's fields, or what `finish` makes of them.

    `at_once` are parsed together, and finished as a batch, where each field has one shape: a function called for
    each record costs more than parsing does. `finish` with `at_once` over 1 is to take both.
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
    """Where each field has one shape; of no values there may be none, for TensorFlow's unbatch crashes on such."""
    return at_once > 1 and all(field.dense and 0 not in field.shape for field in schema)


def read_payloads(payloads: Callable[[], Iterator[bytes]]) -> tf.data.Dataset[Any]:
    """ArrayRecord files and URLs, which TensorFlow does not open: read by us, handed over many at once."""
    import tensorflow as tf

    signature = tf.TensorSpec((None,), tf.string)
    return tf.data.Dataset.from_generator(
        lambda: _plainly(_batches(payloads())), output_signature=signature
    ).unbatch()


def _plainly(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; an error's text survives TensorFlow."""
    try:
        yield from batches
    except Tar2TFError as error:
        raise for_tensorflow(error) from None


def _batches(payloads: Iterator[bytes]) -> Iterator[Any]:
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        batch.append(payload)
        size += len(payload)
        if size >= _PARSED_BYTES or len(batch) == _MOST_PARSED:
            yield np.array(batch, dtype=object)
            batch, size = [], 0
    if batch:
        yield np.array(batch, dtype=object)


def _of_tar(request: LoadRequest) -> tf.data.Dataset[Any]:
    import tensorflow as tf

    fields = [
        f"{field.name}?" if field.optional else field.name
        for field in request.records.schema
        if field.name not in NAMES
    ]
    dataset: Any = None
    for part in request.records.parts:
        spans = list(request.records.of_part(part).spans())
        shards = request.open_tar([file.name for file, _, _ in spans])
        each = shards.select(*fields).dataset().skip(spans[0][1]).take(part.stop - part.start)
        dataset = each if dataset is None else dataset.concatenate(each)
    if request.window:
        dataset = dataset.shuffle(request.window, request.seed)
    dataset = request.cut(dataset)
    if request.batch is not None:
        return dataset.batch(request.batch, drop_remainder=request.drop_remainder)
    return dataset.apply(tf.data.experimental.assert_cardinality(request.length))
