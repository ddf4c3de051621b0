"""The dataset that reads shards: a tf.data pipeline whose iterators can be saved in a checkpoint.

    counter ─► scan: position ─► chunk of records, next position ─► unbatch ─► map ─► prefetch

The state of the scan is the text of the next position, which tf.data saves in a checkpoint, and a token that shows
when the iterator is destroyed. For each chunk the scan calls `ChunkReader.read_chunk`. The records and their order
come from the `streams` package.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ais_tar2tf.options import KIB, MIB, SHARED_SEED, Shuffle, whole_number
from ais_tar2tf.streams.order.seeds import choose_seed
from ais_tar2tf.tfdata.chunk_reader import ChunkReader
from ais_tar2tf.tfdata.columns import BLOCKS, FILE_NUMBERS
from ais_tar2tf.tfdata.counting import Counting
from ais_tar2tf.tfdata.derived import DerivedDataset
from ais_tar2tf.tfdata.liveness import NO_TOKEN
from ais_tar2tf.tfdata.mappings.calls import CORES, batched, guarded, map_graph, map_python, thread_count
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.progress import EpochOffset, IterationStart
from ais_tar2tf.tfdata.request import DatasetRequest
from ais_tar2tf.tfdata.shutdown import tensorflow_callback
from ais_tar2tf.tfdata.tf import Dataset, empty_value, has_several_workers, no_autograph, tf

__all__ = ["ShardDataset", "shard_dataset"]

_OTHER_PROCESS = (
    "ais_tar2tf: this dataset reads its shards in the process that made it, and this is another process (a remote "
    "worker of the tf.data service?). Export the records (src.export, t2t.write_dataset) and let the workers read "
    "the files, or use workers in the process that made the dataset"
)
_PREFETCHED_CHUNKS = 2  # one is split while the next is read
_PREFETCHED_BYTES = 2 * MIB  # of mapped elements; as much as a chunk of records
_MIN_PREFETCHED, _MAX_PREFETCHED = 2, 64  # elements
_DECODED_FACTOR = 10  # a mapped element without a fixed shape is taken for 10 times its record, as a decoded JPEG is
_HUGE_RECORD = 8 * MIB  # from this size, a chunk is one record; reading more of them ahead costs more than waiting
_UNKNOWN_LENGTH = 2**63 - 1  # elements: more than any dataset has. TensorFlow would remove a `take(-1)` as useless.
_LARGE_RECORD = 16 * KIB  # from this size, copying a record costs more than handling it as an element of its own


class ShardDataset(DerivedDataset):
    """A tf.data.Dataset that reads records from shards.

    It has the methods of `tf.data.Dataset`, but `shuffle()` needs no buffer size, and `repeat()` stores the epoch in
    checkpoints; `begin_at()` and `small_checkpoints()` are additional.
    """

    def __init__(self, inner: Dataset, reader: ChunkReader) -> None:
        self._reader = reader
        super().__init__(inner, None, _counting(reader.request))
        if reader.request.loop.batch is not None:
            self.explain_batches()

    @property
    def source(self) -> ShardDataset:
        """The dataset that reads the shards: this dataset itself."""
        return self

    @property
    def url(self) -> str:
        """The URL of the shards' folder, for errors that are not about a single shard."""
        return self.request.reading.url

    @property
    def request(self) -> DatasetRequest:
        """The options with which the dataset was made."""
        return self._reader.request

    @property
    def start(self) -> IterationStart:
        """Where iterators of this dataset, and of every dataset derived from it, begin."""
        return self._reader.start

    def portable(self) -> ShardDataset:
        return self if self._reader.cut is None else shard_dataset(replace(self.request, native=False), self.start)

    @property
    def batch_size(self) -> int | None:
        """The value of `batch=` with which the dataset was made."""
        return self.request.loop.batch

    def begin_at(self, epoch: int, records: int = 0) -> None:
        """Choose where iterators of this dataset, and of datasets derived from it, begin from now on.

        Every later iterator begins at the same record, so call `begin_at` again before the next epoch.

        Args:
            epoch: The epoch whose order the iterators follow.
            records: The number of records of this epoch to leave out.
        """
        self.start.offset, self.start.advances = EpochOffset(epoch, records), False

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> ShardDataset:
        """Permute the shards, and the records within windows. Checkpoints stay small: they hold no records.

        Args:
            buffer_size: The number of records in a window; None for the default of `Shuffle`.
            seed: The seed of the order. None chooses a random seed in each run of the program, but
                `options.SHARED_SEED` for a dataset that is divided among hosts.
            reshuffle_each_iteration: Whether each epoch has a different order.
            name: Ignored; present because tf.data's own method has it.

        Returns:
            The same records in another order, with the mapping and the batches of this dataset.

        Raises:
            OptionError: `buffer_size` or `seed` is not valid.

        Example:
            train = ais.load_from_tar("train-{000..146}.tar").shuffle(seed=7).batch(32)
        """
        del name
        request = self.request
        chosen = choose_seed(seed, shared=request.split or has_several_workers())
        how = Shuffle(seed=chosen.value, reshuffle_each_epoch=reshuffle_each_iteration is not False)
        how = how if buffer_size is None else replace(how, window=buffer_size)
        request.account.stats.seed = chosen.value
        loop = replace(request.loop, seed=chosen)
        return shard_dataset(replace(request, reading=request.reading.shuffled(how), loop=loop), self.start)

    def agree_on_seed(self, seed: int = SHARED_SEED) -> None:
        """Replace a randomly chosen seed by `seed`, so that all hosts, or a resumed run, have the same order."""
        if self.request.loop.seed.drawn:
            self.start.seed = self.request.account.stats.seed = seed

    def note_dropped(self) -> None:
        """Record that Python has dropped an iterator of this dataset, or of a dataset derived from it."""
        self._reader.active_reads.note_dropped()

    def has_records(self, offset: EpochOffset, records: int) -> bool:
        """Return whether an iterator that begins at an offset has at least `records` records."""
        return self._reader.has_records(offset, records)

    def small_checkpoints(self) -> ShardDataset:
        """Return this dataset with checkpoints of some 4 KB, which hold positions instead of prefetched elements.

        The result uses tf.data's symbolic checkpointing, also in `batch`, `map` and `prefetch` that are called on it.
        After a restore, the prefetched elements are read and mapped again. Each record takes some 2 µs longer, or
        80 µs if the mapping can fail on data, as a decoder can.

        TensorFlow raises an error when such an iterator is saved after `cache`, `window`, `rebatch`, `ignore_errors`
        or `bucket_by_sequence_length`.

        Raises:
            OptionError: The mapping returns ragged or sparse tensors.

        Example:
            train = src.dataset(pair, shuffle=True, seed=7).small_checkpoints().batch(32).prefetch(2)
        """
        elements = self.request.elements
        if isinstance(elements.mapping, GraphMapping) and elements.mapping.fallible:
            elements = replace(elements, mapping=guarded(elements.mapping, elements.names))
        return shard_dataset(replace(self.request, elements=elements, small_checkpoints=True), self.start)

    def repeat(self, count: int | None = None, name: str | None = None) -> Any:
        """Repeat the dataset, as the option `repeat=` does, with the epoch in checkpoints.

        A dataset that was made with `batch=` or `start_at=` is repeated by tf.data's own method. Checkpoints then do
        not contain the epoch.

        Args:
            count: The number of repetitions; None or -1 for an endless dataset.
            name: The name of the stage in tf.data.

        Raises:
            OptionError: `count` is not valid.
        """
        request = self.request
        if count == 0 or request.loop.batch is not None or request.loop.start_at:
            return super().repeat(count, name)
        endless = count in (None, -1) or request.loop.epochs < 0
        epochs = -1 if endless else request.loop.epochs * whole_number("count", count, minimum=1)
        return shard_dataset(replace(request, loop=replace(request.loop, epochs=epochs)), self.start)


def _counting(request: DatasetRequest) -> Counting:
    """Return the relation between records and elements."""
    counting = Counting.batches(request.loop.batch, drop_remainder=request.loop.drop_remainder)
    mapping = request.elements.mapping
    if request.account.raises or mapping is None or (isinstance(mapping, GraphMapping) and not mapping.fallible):
        return counting
    return replace(
        counting, refused="on_error= leaves out records on which the mapping fails, and they are not counted"
    )


def shard_dataset(request: DatasetRequest, start: IterationStart | None = None) -> ShardDataset:
    """Build a dataset. No shard is opened before the dataset is iterated.

    Args:
        request: The options of the dataset.
        start: Where iterators begin. If the new dataset replaces another, this is the `start` of the other dataset.
    """
    reader = ChunkReader(request, start)
    mapping = request.elements.mapping
    selected = mapping.selected if isinstance(mapping, GraphMapping) else None
    if mapping is None:
        dataset = _batched_chunks(_chunk_dataset(reader, lambda columns: columns), request)
    elif (
        selected is not None
    ):  # the mapping only selects fields: pass on whole columns, without a call for each record

        def choose(columns: dict[str, Any]) -> Any:
            return tf.nest.map_structure(columns.__getitem__, selected)

        dataset = _batched_chunks(_chunk_dataset(reader, choose), request)
    else:
        dataset = _chunk_dataset(reader, None).unbatch()
        if isinstance(mapping, PythonMapping):
            dataset = batched(map_python(dataset, mapping, request), request)
        else:
            dataset = map_graph(dataset, mapping, reader)
        dataset = dataset.prefetch(_prefetched_elements(dataset.element_spec, request))
    dataset = _with_length(_with_process_check(dataset), request.element_count)
    return ShardDataset(dataset.with_options(_options(request)), reader)


def _options(request: DatasetRequest) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # AUTOTUNE's thread sleeps for up to a minute, and often does not notice that its iterator was dropped. An epoch
    # of 8 s then takes 2 s longer to end.
    options.autotune.enabled = False
    if thread_count(request) > CORES:  # TensorFlow itself starts as many threads as there are cores
        options.threading.private_threadpool_size = thread_count(request)
    if request.small_checkpoints:
        options.experimental_symbolic_checkpoint = True
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.OFF if request.split else policy.DATA
    return options


def _with_process_check(dataset: Dataset) -> Dataset:
    """Make iteration fail with a clear error in any other process, because it lacks the Python functions.

    The check looks in /proc for a thread with this process's id. On systems without /proc, there is no check, and
    TensorFlow's error says that a function is missing.
    """
    if not Path("/proc/self/task").is_dir():
        return dataset

    def fail_elsewhere(number: Any) -> Any:
        found = tf.io.matching_files(f"/proc/self/task/{os.getpid()}")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(found) > 0, [_OTHER_PROCESS])]):
            return number < 0

    return _empty_like(dataset, fail_elsewhere).concatenate(dataset)


def _with_length(dataset: Dataset, elements: int | None) -> Dataset:
    """Give a dataset a cardinality; `elements` is -1 for an endless dataset, None for an unknown length.

    tf.data's `assert_cardinality` would fail when an iterator begins in the middle of an epoch. Instead, an endless
    dataset without elements is appended, and `take` then states the length. `ChunkReader` checks the number of
    records. A dataset of unknown length has the same stages, so that its checkpoints still fit when an index file,
    which states the length, is added or becomes invalid.
    """
    if elements is None:
        nothing = tf.data.Dataset.from_tensors(tf.nest.map_structure(empty_value, dataset.element_spec)).take(0)
        return dataset.concatenate(nothing).take(_UNKNOWN_LENGTH)
    endless = dataset.concatenate(_empty_like(dataset, no_autograph(lambda number: number < 0)).repeat())
    return endless if elements < 0 else endless.take(elements)


def _empty_like(dataset: Dataset, predicate: Callable[[Any], Any]) -> Dataset:
    """Return an empty dataset with the same element type, whose emptiness tf.data cannot know in advance.

    `predicate` is called with 0, and must return False.
    """
    spec = dataset.element_spec

    @no_autograph
    def never_called(_: Any) -> Any:
        return tf.nest.map_structure(empty_value, spec)

    return tf.data.Dataset.range(1).filter(predicate).map(never_called)


def _prefetched_elements(mapped: Any, request: DatasetRequest) -> int:
    """Return how many mapped elements, or batches of them, to prefetch. A checkpoint stores them, too."""
    size = sum(_bytes_of(spec, request) for spec in tf.nest.flatten(mapped)) * (request.loop.batch or 1)
    return max(_MIN_PREFETCHED, min(_MAX_PREFETCHED, _PREFETCHED_BYTES // max(1, size)))


def _bytes_of(spec: Any, request: DatasetRequest) -> int:
    fixed = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string and spec.shape.is_fully_defined()
    return spec.dtype.size * spec.shape.num_elements() if fixed else _DECODED_FACTOR * request.elements.record_bytes


def _batched_chunks(dataset: Dataset, request: DatasetRequest) -> Dataset:
    """Turn chunks into single records or batches.

    Batching single records moves their strings without a copy. Slicing chunks copies the strings, but handles fewer
    elements. So large records are batched one by one, and small records by slicing chunks.
    """
    if request.loop.batch is None or request.elements.record_bytes >= _LARGE_RECORD or request.small_checkpoints:
        return batched(dataset.unbatch(), request)
    return dataset.rebatch(request.loop.batch, drop_remainder=request.loop.drop_remainder)


def _chunk_dataset(reader: ChunkReader, element: Callable[[dict[str, Any]], Any] | None) -> Dataset:
    """Return a dataset of chunks.

    Args:
        reader: Reads the chunks.
        element: A function that returns the element for a chunk's columns by field. None: the element is the chunk's
            tags and columns. The tags are the text of the chunk's position, and the number of its first record.
    """
    names, cut, from_files = reader.request.elements.columns, reader.cut, reader.request.source.from_files
    # TensorFlow takes some 10 µs for each value that Python returns, so values that are not needed are left out.
    tag_types = [tf.string, tf.int64] if element is None else []
    file_types = [tf.int64] if from_files else []
    column_types = [tf.string] * len(names) if cut is None else [tf.uint8] * BLOCKS + file_types + [tf.int64]
    types = [tf.string, tf.int64, tf.bool, *tag_types, *column_types]

    @tensorflow_callback
    def read(text: bytes, token: Any) -> tuple[Any, ...]:
        next_text, token, has_next, *others = reader.read_chunk(text, token)
        tags, columns = others[:2] if tag_types else [], others[2:]
        if cut is not None and not from_files:
            del columns[BLOCKS]
        return np.array(next_text, object), token, has_next, *tags, *columns

    note_unread = tensorflow_callback(reader.note_unread)

    # The columns are cut here rather than in `map`: if that fails, the scan keeps the position of this chunk, and so
    # does a checkpoint that is saved afterwards.
    @no_autograph
    def step(state: Any, _: Any) -> Any:
        next_text, token, has_next, *others = tf.numpy_function(read, [*state], types, stateful=True)
        tags, columns = others[: len(tag_types)], others[len(tag_types) :]
        for tensor in (next_text, has_next, *tags):
            tensor.set_shape(())
        token.set_shape(NO_TOKEN.shape)
        if cut is None:
            for tensor in columns:
                tensor.set_shape((None,))
        else:
            blocks, values = columns[:BLOCKS], tf.ensure_shape(columns[-1], (2, len(names), None))
            files = columns[BLOCKS] if from_files else tf.zeros((0, FILE_NUMBERS), tf.int64)
            is_read, columns = cut.ais_tar2tf_cut(blocks, files, values[0], values[1], F=len(names))
            columns = [tf.ensure_shape(tensor, (None,)) for tensor in columns]
            if from_files:  # blocks can always be read
                text = tags[0] if tags else tf.constant("")
                is_read = _or_else(is_read, note_unread, [files, text])
                next_text, has_next = tf.where(is_read, next_text, text), has_next & is_read
        return (next_text, token), (has_next, tuple(tags), tuple(columns))

    @no_autograph
    def chunk(_has_next: Any, tags: Any, columns: Any) -> Any:
        by_name = dict(zip(names, columns, strict=True))
        return _with_record_tags(tags, by_name) if element is None else element(by_name)

    begin = (tf.constant(""), tf.constant(NO_TOKEN))
    results = tf.data.Dataset.counter().scan(begin, step)
    chunks = results.take_while(no_autograph(lambda has_next, _tags, _columns: has_next))
    chunks = chunks.map(chunk)
    return chunks.prefetch(1 if reader.request.elements.record_bytes >= _HUGE_RECORD else _PREFETCHED_CHUNKS)


def _or_else(condition: Any, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """Return a condition if it is true; otherwise call a Python function, and return its result.

    This has the effect of `tf.cond`, which would take 5 ms at each start of an iterator. If the condition is true,
    the call gets no input, and so it does not run. In a `tf.function`, no other call of Python may follow: TensorFlow
    would let it wait for this call, and would not run it either.
    """
    arguments = [tf.raw_ops.Switch(data=argument, pred=condition).output_false for argument in arguments]
    result = tf.numpy_function(function, arguments, tf.bool)
    is_true = tf.raw_ops.Switch(data=condition, pred=condition).output_true
    return tf.ensure_shape(tf.raw_ops.Merge(inputs=[result, is_true]).output, ())


def _with_record_tags(tags: Any, columns: dict[str, Any]) -> Any:
    """Return each record's tags, which are the text of its chunk's position and its own number, and the columns."""
    position, first = tags
    count = tf.size(next(iter(columns.values())), out_type=tf.int64)
    return (tf.fill([count], position), tf.range(first, first + count)), columns
