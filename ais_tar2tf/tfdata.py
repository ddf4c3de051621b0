"""Record streams → tf.data.Dataset: chunks addressed by a position, so that an iterator can be checkpointed.

    counter ─► scan: position ─► chunk of records, next position ─► unbatch ─► map ─► prefetch

The position is text in the scan's state, which tf.data saves; `read` takes the open stream that stands at a
position from a pool, or opens one there. The records, their order and their shuffling come from `reader`.

A mapping that can fail runs unguarded in C++, and failed records drop out; a check behind it sees the gap in
the count of records, finds the missing record again by its position, and says which it was and why.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.account import Account
from ais_tar2tf.errors import MappingError, Tar2TFError
from ais_tar2tf.mapping import GraphMapping, PythonMapping, flatten_shapes, mapping_error
from ais_tar2tf.plan import Plan, Position
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.records import Record

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack half of tf.data
    Dataset = Any
else:
    import tensorflow as tf

    Dataset = tf.data.Dataset

__all__ = ["Request", "ShardDataset", "build"]

_PREFETCHED_CHUNKS = 2  # one being split while the next is read
_REMEMBERED_RUNS = 64  # iterators of one dataset whose end is still known


@dataclass(frozen=True)
class Request:
    """What `build` makes a dataset of."""

    shards: Shards
    plan: Plan
    account: Account
    names: tuple[str, ...]  # of the fields that elements have
    optional: frozenset[str]  # fields that may be absent, and are then b""
    mapping: GraphMapping | PythonMapping | None = None
    batch: int | None = None
    drop_remainder: bool = False
    repeat: int = 1
    seed: int = 0
    start_at: int = 0
    parallel: int | None = None
    auto_shard: bool = True


class ShardDataset(Dataset):
    """A tf.data.Dataset whose `shuffle` needs no argument: shards and a window of records, as `Shuffle` says."""

    def __init__(self, inner: Dataset, reshuffled: Callable[[int | None, int | None, bool], ShardDataset]):
        self._inner = inner
        self._reshuffled = reshuffled
        super().__init__(inner._variant_tensor)

    def _inputs(self) -> list[Dataset]:
        return [self._inner]

    @property
    def element_spec(self) -> Any:
        return self._inner.element_spec

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        name: str | None = None,
    ) -> ShardDataset:
        """Shards in another order, records permuted in windows of `buffer_size`; a checkpoint stays small."""
        del name
        return self._reshuffled(buffer_size, seed, reshuffle_each_iteration)


def build(request: Request) -> Dataset:
    """The dataset; it opens nothing before it is iterated."""
    chunks = _Chunks(request)
    mapping = request.mapping
    dataset = _chunk_dataset(chunks)
    selected = mapping.selected if isinstance(mapping, GraphMapping) else None
    if mapping is None or selected is not None:
        dataset = _batched(dataset.map(_choose(selected)), request, is_chunks=True)
    elif isinstance(mapping, PythonMapping):
        dataset = _batched(_map_python(dataset.unbatch(), mapping, request), request).prefetch(tf.data.AUTOTUNE)
    else:
        dataset = _batched(_map_graph(dataset.unbatch(), mapping, request, chunks), request)
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.DATA if request.auto_shard else policy.OFF
    return dataset.with_options(options)


def _choose(selected: Any) -> Callable[..., Any]:
    """Whole columns, as they are or in the structure of a mapping that only selects: no call for each record."""

    def choose(_tags: Any, columns: dict[str, Any]) -> Any:
        return columns if selected is None else tf.nest.map_structure(columns.__getitem__, selected)

    return choose


def _batched(dataset: Dataset, request: Request, *, is_chunks: bool = False) -> Dataset:
    if request.batch is None:
        return dataset.unbatch() if is_chunks else dataset
    if is_chunks:
        return dataset.rebatch(request.batch, drop_remainder=request.drop_remainder)
    return dataset.batch(request.batch, drop_remainder=request.drop_remainder)


def _chunk_dataset(chunks: _Chunks) -> Dataset:
    """Elements ((position, number), columns) with as many rows as a chunk has records."""
    names = chunks.request.names
    types = [tf.string, tf.string, tf.int64] + [tf.string] * len(names)

    read = _plainly(chunks.step)

    def step(position: Any, _: Any) -> Any:
        following, at, numbers, *columns = tf.numpy_function(read, [position], types, stateful=True)
        following.set_shape(())
        for tensor in (at, numbers, *columns):
            tensor.set_shape((None,))
        return following, ((at, numbers), dict(zip(names, columns, strict=True)))

    return (
        tf.data.Dataset.counter()
        .scan(tf.constant(""), step)
        .take_while(lambda tags, _columns: tf.size(tags[1]) > 0)
        .prefetch(_PREFETCHED_CHUNKS)
    )


# Mappings.


def _map_graph(dataset: Dataset, mapping: GraphMapping, request: Request, chunks: _Chunks) -> Dataset:
    calls = request.parallel or tf.data.AUTOTUNE
    if not mapping.fallible:
        return dataset.map(lambda _tags, columns: mapping(columns), num_parallel_calls=calls)
    chunks.diagnose_with(mapping)
    explain = _plainly(chunks.explain)
    mapped = dataset.map(lambda tags, columns: (tags, mapping(columns)), num_parallel_calls=calls)
    mapped = mapped.ignore_errors(log_warning=False)
    nothing = tf.nest.map_structure(_nothing_of, mapping.spec)
    end = tf.data.Dataset.from_tensors(((tf.constant(""), tf.constant(-1, tf.int64)), nothing))

    def check(state: Any, element: Any) -> Any:
        position, last = state
        (at, number), value = element
        checked = tf.cond(
            tf.equal(number, last + 1),
            lambda: tf.constant(True),
            lambda: tf.ensure_shape(tf.numpy_function(explain, [position, last, number], tf.bool, stateful=True), ()),
        )
        with tf.control_dependencies([checked]):
            return (tf.identity(at), tf.identity(number)), (number >= 0, value)

    return (
        mapped.concatenate(end)
        .scan((tf.constant(""), tf.constant(request.start_at - 1, tf.int64)), check)
        .filter(lambda is_record, _value: is_record)
        .map(lambda _is_record, value: value)
    )


def _nothing_of(spec: Any) -> Any:
    """A value of that type, for the element that marks the end and is never seen."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([], spec.dtype, ragged_rank=spec.ragged_rank)
    shape = [size or 0 for size in spec.shape] if spec.shape.rank is not None else []
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensor(np.zeros((0, len(shape)), np.int64), np.zeros(0, spec.dtype.as_numpy_dtype), shape)
    return tf.zeros(shape, spec.dtype)


def _map_python(dataset: Dataset, mapping: PythonMapping, request: Request) -> Dataset:
    names, account = request.names, request.account
    types = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(mapping.types)]
    shapes = flatten_shapes(mapping.shapes, len(types))

    nothing = [_nothing_of(tf.TensorSpec(shape, dtype)).numpy() for shape, dtype in zip(shapes, types, strict=True)]

    @_plainly
    def call(*values: bytes) -> list[Any]:
        record = _as_record(names, values)
        try:
            result = tf.nest.flatten(mapping.function(record))
            converted = [_converted(value, dtype) for value, dtype in zip(result, types, strict=True)]
        except Exception as error:  # noqa: BLE001  # a StopIteration would end the dataset without a word
            account.take_back(mapping_error(error, record))
            return [False, *nothing]
        return [True, *converted]

    def apply(_tags: Any, columns: dict[str, Any]) -> Any:
        good, *flat = tf.numpy_function(call, [columns[name] for name in names], [tf.bool, *types], stateful=True)
        good.set_shape(())
        for tensor, shape in zip(flat, shapes, strict=True):
            tensor.set_shape(shape)
        return good, tf.nest.pack_sequence_as(mapping.types, flat)

    return (
        dataset.map(apply, num_parallel_calls=request.parallel or tf.data.AUTOTUNE)
        .filter(lambda good, _value: good)
        .map(lambda _good, value: value)
    )


def _converted(value: Any, dtype: Any) -> Any:
    """What a user's Python returned, as an array of the type asked for; text is read as a number."""
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if isinstance(value, bytes | str) and dtype != tf.string:
        value = float(value) if dtype.is_floating else int(value)
    if dtype == tf.string:
        return value.encode() if isinstance(value, str) else np.asarray(value, dtype=object)
    return np.asarray(value, dtype=dtype.as_numpy_dtype)


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Our errors without what led to them: TensorFlow makes one text of all of it, and ours says it already."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Tar2TFError as error:
            error.__cause__ = None
            error.__suppress_context__ = True
            raise error.with_traceback(None)  # noqa: B904  # on purpose: see above

    return call


def _as_record(names: Sequence[str], values: Sequence[bytes]) -> Record:
    record: Record = dict(zip(names, values, strict=True))
    for name in ("__key__", "__shard__"):
        record[name] = record[name].decode("utf-8", "surrogateescape")
    return record


# Chunks.


class _Chunks:
    """The Python behind one dataset: chunks by position, and what became of a record that is missing."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._pool = _StreamPool(request.shards.read.limits.open_streams, request.shards.read.timeouts.dropped)
        self._epochs = count()
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._mapping: GraphMapping | None = None

    def diagnose_with(self, mapping: GraphMapping) -> None:
        """Errors of a stream are from now on told by `explain`: the mapping drops what fails, so also them."""
        self._mapping = mapping

    def step(self, state: bytes) -> tuple[Any, ...]:
        """The chunk at a position: the next position, (position, number) of each record, and the columns."""
        at = self._position(state)
        run = self._run(at)
        if run.error is not None:
            return self._as_arrays(state, at, [])
        try:
            stream = self._stream_at(at)
            try:
                chunk = stream.next_chunk()
            except BaseException:
                stream.close()
                raise
        except Exception as error:
            if self._mapping is None:
                raise
            run.error = error
            chunk = []
        else:
            following = stream.position.to_text()
            state = following.encode()
            if chunk:
                self._pool.put(following, stream)
            else:
                stream.close()
                self._pool.rest()
        if chunk:
            self.request.account.emitted(len(chunk))
        else:
            run.end = at.count
        return self._as_arrays(state, at, chunk)

    def explain(self, state: bytes, last: np.int64, number: np.int64) -> np.bool_:
        """Records behind number `last` are missing before `number` (-1: before the end). Skips or raises."""
        before = self._position(state) if state else self._latest_begin()
        run = self._run(before)
        at_end = number < 0
        if at_end and run.error is not None:
            raise run.error
        if at_end and run.end == last + 1:
            return np.True_
        stream = RecordStream(self.request.shards, self.request.plan, before, self.request.account.twin())
        try:
            stream.discard(int(last) + 1 - before.count)
            missing = None if at_end else int(number - last) - 1
            while missing is None or missing > 0:
                chunk = stream.next_chunk(missing)
                if not chunk:
                    break
                for record in chunk:
                    self.request.account.take_back(self._failure_of(record))
                missing = None if missing is None else missing - len(chunk)
        finally:
            stream.close()
        return np.True_

    def _failure_of(self, record: Record) -> Tar2TFError:
        assert self._mapping is not None
        values = dict(zip(self.request.names, self._row(record), strict=True))
        try:
            self._mapping({name: tf.constant(value) for name, value in values.items()})
        except Exception as error:  # noqa: BLE001  # this is what we came for
            return mapping_error(error, record)
        return MappingError(
            "the mapping failed on this record, and did not when tried again",
            shard=record["__shard__"],
            key=record["__key__"],
        )

    def _position(self, state: bytes) -> Position:
        if state:
            return Position.from_text(state.decode())
        request = self.request
        begin = request.plan.begin(next(self._epochs), request.seed, request.repeat)
        position = replace(begin, run=random.SystemRandom().getrandbits(62))
        if request.start_at:
            stream = RecordStream(request.shards, request.plan, position, request.account)
            stream.discard(request.start_at)
            position = stream.position
            self._pool.put(position.to_text(), stream)
        self._run(position).begin = position
        return position

    def _run(self, position: Position) -> _Run:
        with self._lock:
            run = self._runs.setdefault(position.run, _Run())
            self._runs.move_to_end(position.run)
            if len(self._runs) > _REMEMBERED_RUNS:
                self._runs.popitem(last=False)
            return run

    def _latest_begin(self) -> Position:
        with self._lock:
            begins = [run.begin for run in self._runs.values() if run.begin is not None]
        return begins[-1]

    def _stream_at(self, at: Position) -> RecordStream:
        stream = self._pool.take(at.to_text())
        return stream or RecordStream(self.request.shards, self.request.plan, at, self.request.account)

    def _row(self, record: Record) -> list[Any]:
        """The values of one record in the order of the names; text as bytes."""
        row: list[Any] = []
        for name in self.request.names:
            value = record.get(name, b"")
            row.append(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)
        return row

    def _as_arrays(self, following: bytes, at: Position, chunk: list[Record]) -> tuple[Any, ...]:
        numbers = np.arange(at.count, at.count + len(chunk), dtype=np.int64)
        needs_position = self._mapping is not None
        positions = np.full(len(chunk), at.to_text().encode() if needs_position else b"", dtype=object)
        columns = [self._column(name, chunk) for name in self.request.names]
        return following, positions, numbers, *columns

    def _column(self, name: str, chunk: list[Record]) -> Any:
        column = np.empty(len(chunk), dtype=object)
        if name in ("__key__", "__shard__"):
            column[:] = [record[name].encode("utf-8", "surrogateescape") for record in chunk]
        elif name in self.request.optional:
            column[:] = [record.get(name, b"") for record in chunk]
        else:
            column[:] = [record[name] for record in chunk]
        return column


@dataclass
class _Run:
    """What is known of one iterator, or of several that share a checkpoint."""

    begin: Position | None = None
    end: int | None = None  # records that it had
    error: Exception | None = None


@dataclass(order=True)
class _Idle:
    since: float
    state: str = field(compare=False)
    stream: RecordStream = field(compare=False)


class _StreamPool:
    """Open streams by the position at which they stand. What nobody takes for a while is closed.

    Nobody says when an iterator, or a dataset, is dropped: TensorFlow keeps what its graphs call for ever.
    """

    def __init__(self, most: int, dropped: float) -> None:
        self._most = most
        self._dropped = dropped
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []  # the longest idle first
        self._timer: threading.Timer | None = None

    def take(self, state: str) -> RecordStream | None:
        with self._lock:
            self._idle = [idle for idle in self._idle if not idle.stream.closed]
            for index, idle in enumerate(self._idle):
                if idle.state == state:
                    return self._idle.pop(index).stream
        return None

    def put(self, state: str, stream: RecordStream) -> None:
        with self._lock:
            self._idle.append(_Idle(time.monotonic(), state, stream))
            surplus = self._idle.pop(0) if len(self._idle) > self._most else None
            self._watch()
        if surplus is not None:
            surplus.stream.close()

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            wait = max(0.01, self._idle[0].since + self._dropped - time.monotonic())
            self._timer = threading.Timer(wait, self.sweep)
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        """No thread watches when there is nothing to watch."""
        with self._lock:
            if not self._idle and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def sweep(self) -> None:
        with self._lock:
            self._timer = None
            deadline = time.monotonic() - self._dropped
            old = [idle for idle in self._idle if idle.since <= deadline]
            self._idle = [idle for idle in self._idle if idle.since > deadline]
            self._watch()
        for idle in old:
            idle.stream.close()
