"""Record streams → tf.data.Dataset: chunks addressed by a position, so that an iterator can be checkpointed.

    counter ─► scan: position ─► chunk of records, next position ─► unbatch ─► map ─► prefetch

The position is text in the scan's state, which tf.data saves; `read` takes the open stream that stands at a
position from a pool, or opens one there. A token in the same state tells when the iterator is gone. The records,
their order and their shuffling come from `reader`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ais_tar2tf.options import KIB, MIB, SHARED_SEED, Shuffle, whole_number
from ais_tar2tf.plan.seeds import choose_seed
from ais_tar2tf.tfdata.begin import Begin, Place
from ais_tar2tf.tfdata.calls import plainly
from ais_tar2tf.tfdata.chunks import Chunks, Request
from ais_tar2tf.tfdata.counting import Counting
from ais_tar2tf.tfdata.graphs import Dataset, as_it_is, nothing_of, tf
from ais_tar2tf.tfdata.mapped import CORES, guarded, map_graph, map_python, tell_calls, threads
from ais_tar2tf.tfdata.staged import StagedDataset
from ais_tar2tf.tfdata.tokens import NO_TOKEN
from ais_tar2tf.tfdata.tracing import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.workers import several_workers

__all__ = ["ShardDataset", "build", "dataset_of"]

_ELSEWHERE = (
    "ais_tar2tf: this dataset reads its shards in the process that made it, and this is another one (a remote worker "
    "of the tf.data service?). Export the records (src.export, t2t.write_dataset) and let the workers read the "
    "files, or use workers in the process that made the dataset"
)
_PREFETCHED_CHUNKS = 2  # one being split while the next is read
_PREFETCHED_BYTES = 2 * MIB  # of elements that were mapped; as much as a chunk of records
_LEAST_PREFETCHED, _MOST_PREFETCHED = 2, 64  # elements
_DECODED = 10  # times the bytes of a record, where nobody knows what becomes of it: a JPEG's pixels
_HUGE = 8 * MIB  # bytes of a record: above this, a chunk is one, and holding another costs more than waiting for it
_UNKNOWN = 2**63 - 1  # elements, of which there are fewer; -1 would be optimised away, and not in the checkpoint
_LARGE = 16 * KIB  # bytes of a record: above this, copying it costs more than handing it on by itself


class ShardDataset(StagedDataset):
    """A tf.data.Dataset whose `shuffle` needs no argument: shards and a window of records, as `Shuffle` says."""

    def __init__(self, inner: Dataset, chunks: Chunks) -> None:
        self._chunks = chunks
        super().__init__(inner, None, _counting(chunks.request))
        if chunks.request.batch is not None:
            self.explain_batches()

    @property
    def source(self) -> ShardDataset:
        """This dataset reads the shards itself."""
        return self

    @property
    def url(self) -> str:
        """For errors that no shard is to blame for."""
        return self._chunks.request.reading.url

    @property
    def request(self) -> Request:
        """What the dataset was made of."""
        return self._chunks.request

    @property
    def begin(self) -> Begin:
        """Where iterators begin, of this dataset and of every dataset made of it."""
        return self._chunks.begin

    @property
    def batch_size(self) -> int | None:
        """What `batch=` was given when the dataset was made."""
        return self.request.batch

    def begin_at(self, epoch: int, records: int = 0) -> None:
        """Iterators of this dataset, and of what was made of it, that begin from now on do so in `epoch`.

        The first of them leaves out so many records: say 0 again before the next epoch.
        """
        self.begin.at, self.begin.onward = Place(epoch, records), False

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> ShardDataset:
        """Permute the shards, and the records in windows of `buffer_size`; a checkpoint stays small.

        Without `seed` every run has another order; a dataset that `shard=` splits uses `options.SHARED_SEED`.
        """
        del name
        request = self.request
        chosen = choose_seed(seed, shared=request.split or several_workers())
        how = Shuffle(seed=chosen.value, reshuffle_each_epoch=reshuffle_each_iteration is not False)
        how = how if buffer_size is None else replace(how, window=buffer_size)
        request.account.stats.seed = chosen.value
        return dataset_of(replace(request, reading=request.reading.shuffled(how), seed=chosen), self.begin)

    def agree_on_seed(self, seed: int = SHARED_SEED) -> None:
        """Replace a drawn seed, as other hosts do that `.shard()` the dataset, or as an earlier run drew it."""
        if self.request.seed.drawn:
            self.begin.seed = self.request.account.stats.seed = seed

    def note_dropped(self) -> None:
        """Note that Python has dropped one of the iterators: of this dataset, or of one that was made of it."""
        self._chunks.under_way.note_dropped()

    def has_records(self, place: Place, records: int) -> bool:
        """Return whether so many records follow a place before an iterator that begins there ends."""
        return self._chunks.has_records(place, records)

    def small_checkpoints(self) -> ShardDataset:
        """Let checkpoints of iterators hold 4 KB: the place of the next element, instead of all that is in flight.

        This is tf.data's symbolic checkpointing, so it holds for `batch`, `map` and `prefetch` behind this dataset,
        too. What was in flight is read and mapped again after a restore. A record costs some 2 µs more, and 80 µs
        where its mapping can fail on data, such as a decoder. TensorFlow cannot save such an iterator behind
        `cache`, `window`, `rebatch`, `ignore_errors` and `bucket_by_sequence_length`, and says so when it is saved.

        Example:
            train = src.dataset(pair, shuffle=True, seed=7).small_checkpoints().batch(32).prefetch(2)
        """
        request = self.request
        if isinstance(request.mapping, GraphMapping) and request.mapping.fallible:
            request = replace(request, mapping=guarded(request.mapping, request.names))
        return dataset_of(replace(request, small_checkpoints=True), self.begin)

    def repeat(self, count: int | None = None, name: str | None = None) -> Any:
        """As `repeat=`: a checkpoint then knows the epoch. tf.data's own counts, and tells nobody."""
        request = self.request
        if count == 0 or request.batch is not None or request.start_at:
            return super().repeat(count, name)
        endless = count in (None, -1) or request.repeat < 0
        epochs = -1 if endless else request.repeat * whole_number("count", count, least=1)
        return dataset_of(replace(request, repeat=epochs), self.begin)


def _counting(request: Request) -> Counting:
    """How many records an element takes."""
    counting = Counting.batches(request.batch, drop_remainder=request.drop_remainder)
    mapping = request.mapping
    if request.account.raises or mapping is None or (isinstance(mapping, GraphMapping) and not mapping.fallible):
        return counting
    return replace(
        counting, refused="on_error= leaves out records on which the mapping fails, and nobody counts those"
    )


def dataset_of(request: Request, begin: Begin | None = None) -> ShardDataset:
    """The dataset; what its `shuffle` and `repeat` give is another request that begins where it is told to."""
    return ShardDataset(*build(request, begin))


def build(request: Request, begin: Begin | None = None) -> tuple[Dataset, Chunks]:
    """The dataset, and the Python behind it; it opens nothing before it is iterated."""
    chunks = Chunks(request, begin)
    mapping = request.mapping
    selected = mapping.selected if isinstance(mapping, GraphMapping) else None
    if mapping is None:
        dataset = _batched_chunks(_chunk_dataset(chunks, lambda _tags, columns: columns), request)
    elif selected is not None:  # whole columns, in the mapping's structure: no call for each record

        def choose(_tags: Any, columns: dict[str, Any]) -> Any:
            return tf.nest.map_structure(columns.__getitem__, selected)

        dataset = _batched_chunks(_chunk_dataset(chunks, choose), request)
    else:
        dataset = _chunk_dataset(chunks, _tagged).unbatch()
        if isinstance(mapping, PythonMapping):
            dataset = map_python(dataset, mapping, request)
        else:
            dataset = map_graph(dataset, mapping, request, chunks)
            tell_calls(request)
        dataset = _batched(dataset, request).prefetch(_ahead(dataset.element_spec, request))
    return _with_length(_only_here(dataset), request.elements).with_options(_options(request)), chunks


def _options(request: Request) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # What tunes AUTOTUNE sleeps for up to a minute and often misses that its iterator was dropped: an epoch of 8 s
    # then takes 2 s more to end.
    options.autotune.enabled = False
    if threads(request) > CORES:  # TensorFlow's own threads are as many as there are cores
        options.threading.private_threadpool_size = threads(request)
    if request.small_checkpoints:
        options.experimental_symbolic_checkpoint = True
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.OFF if request.split else policy.DATA
    return options


def _only_here(dataset: Dataset) -> Dataset:
    """The same dataset, behind a check that its graph runs in the process that made it: elsewhere its Python is not.

    The check looks for this process's own entry in /proc. Without one, TensorFlow says that a function is missing.
    """
    if not Path("/proc/self/task").is_dir():
        return dataset

    def is_there(number: Any) -> Any:
        found = tf.io.matching_files(f"/proc/self/task/{os.getpid()}")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(found) > 0, [_ELSEWHERE])]):
            return number < 0

    return _nothing_like(dataset, is_there).concatenate(dataset)


def _with_length(dataset: Dataset, elements: int | None) -> Dataset:
    """The same dataset, whose cardinality says how many elements it has (-1: no end).

    What `assert_cardinality` makes fails when an iterator begins in the middle of an epoch. So: behind the elements
    stands something that has no end as far as anybody can tell, and nothing in it; then `take` knows the length.
    Whether as many came as were promised, `Chunks` checks. A length that nobody knows (None) is made of the same
    parts, so that a checkpoint goes on where an index was written, or became untrue, in the meantime.
    """
    nothing = _nothing_like(dataset, as_it_is(lambda number: number < 0))
    if elements is None:
        return dataset.concatenate(nothing).take(_UNKNOWN)
    endless = dataset.concatenate(nothing.repeat())
    return endless if elements < 0 else endless.take(elements)


def _nothing_like(dataset: Dataset, is_there: Callable[[Any], Any]) -> Dataset:
    """A dataset of the same elements, none of which `is_there`."""
    spec = dataset.element_spec

    @as_it_is
    def never_made(_: Any) -> Any:
        return tf.nest.map_structure(nothing_of, spec)

    return tf.data.Dataset.range(1).filter(is_there).map(never_made)


def _batched(dataset: Dataset, request: Request) -> Dataset:
    return dataset if request.batch is None else dataset.batch(request.batch, drop_remainder=request.drop_remainder)


def _ahead(mapped: Any, request: Request) -> int:
    """Return how many mapped elements, or batches of them, to prefetch; a checkpoint stores these, too."""
    size = sum(_bytes_of(spec, request) for spec in tf.nest.flatten(mapped)) * (request.batch or 1)
    return max(_LEAST_PREFETCHED, min(_MOST_PREFETCHED, _PREFETCHED_BYTES // max(1, size)))


def _bytes_of(spec: Any, request: Request) -> int:
    known = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string and spec.shape.is_fully_defined()
    return spec.dtype.size * spec.shape.num_elements() if known else _DECODED * request.record_bytes


def _batched_chunks(dataset: Dataset, request: Request) -> Dataset:
    """Strings that stand alone are moved into a batch, those of a chunk are copied, unless it holds whole batches."""
    if request.batch is None or request.record_bytes >= _LARGE or request.small_checkpoints:
        return _batched(dataset.unbatch(), request)
    return dataset.rebatch(request.batch, drop_remainder=request.drop_remainder)


def _chunk_dataset(chunks: Chunks, element: Callable[[Any, dict[str, Any]], Any]) -> Dataset:
    """What `element` makes of a chunk: its position and the number of its first record, and columns of its fields."""
    names = chunks.request.handed
    types = [tf.string, tf.int64, tf.bool, tf.string, tf.int64] + [tf.string] * len(names)

    read = plainly(chunks.step)

    @as_it_is
    def step(state: Any, _: Any) -> Any:
        following, token, goes_on, at, number, *columns = tf.numpy_function(read, [*state], types, stateful=True)
        for tensor in (following, goes_on, at, number):
            tensor.set_shape(())
        token.set_shape(NO_TOKEN.shape)
        for tensor in columns:
            tensor.set_shape((None,))
        return (following, token), (goes_on, element((at, number), dict(zip(names, columns, strict=True))))

    ahead = 1 if chunks.request.record_bytes >= _HUGE else _PREFETCHED_CHUNKS
    begin = (tf.constant(""), tf.constant(NO_TOKEN))
    answers = tf.data.Dataset.counter().scan(begin, step)
    chunks_only = answers.take_while(as_it_is(lambda goes_on, _: goes_on)).map(as_it_is(lambda _, chunk: chunk))
    return chunks_only.prefetch(ahead)


def _tagged(tags: Any, columns: dict[str, Any]) -> Any:
    """For each record the position of its chunk, and its own number."""
    position, first = tags
    count = tf.size(next(iter(columns.values())), out_type=tf.int64)
    return (tf.fill([count], position), tf.range(first, first + count)), columns
