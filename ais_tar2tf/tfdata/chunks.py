"""Chunks of records by position, as columns: the Python behind a dataset, called by its graph.

A chunk's address is the text of a position. The open stream that stands there waits in a pool, so that reading on
opens nothing; anybody else's position, or one from a checkpoint, opens a stream of its own.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ais_tar2tf import forking
from ais_tar2tf.account import Account
from ais_tar2tf.errors import MappingError, Tar2TFError
from ais_tar2tf.mapping import mapping_error
from ais_tar2tf.plan.seeds import Seed
from ais_tar2tf.reading import At, Reading, Stream
from ais_tar2tf.reading.loops import wrong_index
from ais_tar2tf.records import NAMES, Record, Records
from ais_tar2tf.tfdata.begin import Begin, Place
from ais_tar2tf.tfdata.columns import as_column, column_of, without
from ais_tar2tf.tfdata.given import DIFFERENCE, differences
from ais_tar2tf.tfdata.tokens import Tokens, number_of
from ais_tar2tf.tfdata.tracing import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.waiting import StreamPool, UnderWay

__all__ = ["Chunks", "Request"]

_NO_SHUFFLE = Seed(0)
_REMEMBERED_RUNS = 64  # iterators of one dataset whose end is still known


@dataclass(frozen=True)
class Request:
    """What `build` makes a dataset of."""

    reading: Reading
    account: Account
    names: tuple[str, ...]  # of the fields that elements have
    optional: frozenset[str]  # fields that may be absent, and are then b""
    mapping: GraphMapping | PythonMapping | None = None
    batch: int | None = None
    drop_remainder: bool = False
    repeat: int = 1
    seed: Seed = _NO_SHUFFLE
    start_at: int = 0
    parallel: int | None = None
    split: bool = False  # among hosts, by `shard=`; tf.data's auto-sharding then is off
    record_bytes: int = 0  # of a usual one
    small_checkpoints: bool = False  # they hold places, not the records that are in flight

    @property
    def handed(self) -> tuple[str, ...]:
        """The names of what TensorFlow gets of a record: what a graph never touches is not handed over."""
        if isinstance(self.mapping, GraphMapping):
            return self.mapping.fields or NAMES[:1]
        return self.names if self.mapping is None else (*self.names, DIFFERENCE)

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of fields that no record may have, because the mapping's graph takes them for absent."""
        return () if self.mapping is None else self.mapping.absent

    @property
    def whole_batches(self) -> int:
        """How many batches a chunk holds; 0 where there are none, or they are larger than a chunk."""
        limits = self.reading.read.limits
        if self.batch is None:
            return 0
        return min(limits.chunk_records, limits.chunk_bytes // 2 // max(1, self.record_bytes)) // self.batch

    @property
    def records(self) -> int | None:
        """How many records an iterator gives; -1 for records without an end, None where it is not known."""
        each = self.reading.length(self.seed.value)
        if self.repeat < 0:
            return 0 if each == 0 else -1
        return None if each is None else max(0, self.repeat * each - self.start_at)

    @property
    def elements(self) -> int | None:
        """The same, of batches where there are any."""
        records = self.records
        if records is None or records < 0 or self.batch is None:
            return records
        return records // self.batch if self.drop_remainder else -(-records // self.batch)


class Chunks:
    """The Python behind one dataset: chunks by position, and what became of a record that is missing."""

    def __init__(self, request: Request, begin: Begin | None = None) -> None:
        self.request = request
        self.begin: Begin = begin or Begin()
        read = request.reading.read
        self.under_way: UnderWay = UnderWay()
        self._tokens = Tokens()
        self._pool = StreamPool(read.limits.open_streams, read.timeouts.dropped, self._tokens)
        self._next_epoch = 0  # of the next iterator
        self._lock = forking.lock()
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._mapping: GraphMapping | None = None
        self._refused: Exception | None = None  # what was wrong with a position

    def diagnose_with(self, mapping: GraphMapping) -> None:
        """Errors of a stream are from now on told by `explain`: the mapping drops what fails, so also them."""
        self._mapping = mapping

    def step(self, state: bytes, given: Any) -> tuple[Any, ...]:
        """Return the chunk at a position, for the iterator that was given a token (see `tokens`).

        The next position, the token, whether to ask for another chunk, this position, the number of its first
        record, and the columns. They are empty at the end, and where the stream was closed meanwhile.
        """
        began = time.perf_counter()
        token = self._tokens.of(given)
        run: list[_Run] = []
        try:
            following, *rest = self._step(state, number_of(token), run)
            return following, token, *rest
        finally:
            ended = time.perf_counter()
            for each in run:
                self.request.account.add(reading=ended - began, idle=began - (each.left_at or began))
                each.left_at = ended

    def _step(self, state: bytes, token: int, whose: list[_Run]) -> tuple[Any, ...]:
        stream = self._pool.take(state) if state else None
        try:
            at = stream.position if stream is not None else self._position(state, token)
            stream = stream or (None if state else self._pool.take(at.to_text().encode()))
        except Exception as error:
            if self._mapping is None:
                raise
            self._refused = error
            return self._as_arrays(state, self.request.reading.begin(0, self._seed, 1), Records())
        run = self._run(at)
        whose.append(run)
        if run.error is not None:
            return self._as_arrays(state, at, Records())
        try:
            stream = stream or self._stream_at(at)
            return self._next(stream, at, token)
        except Exception as error:
            if stream is not None:
                stream.close()
            if self.begin.trail is not None:
                self.begin.trail.failed(at.run)
            if self._mapping is None:
                raise
            run.error = error
            return self._as_arrays(state, at, Records())

    def _next(self, stream: Stream, at: At, token: int) -> tuple[Any, ...]:
        """Return the chunk of a stream that stands at a position, as `step` does without the token."""
        chunk = self._read(stream, at)
        if chunk is None:
            return self._as_arrays(at.to_text().encode(), at, Records(), again=True)
        position = stream.position
        following = position.to_text().encode()
        answer = self._as_arrays(following, at, chunk)
        stream = self._at_its_end(stream) if chunk else stream
        self._note(at, position, following)
        if chunk:
            self._check_length(position, at_end=False)
            self._pool.put(following, stream, token)
            self.request.account.emitted(len(chunk))
        else:
            self._run(at).end = at.count
            stream.close()
            self._check_length(at, at_end=True)
        return answer

    def _note(self, at: At, following: At, text: bytes) -> None:
        """Tell whoever follows the iterators how far this one is."""
        trail, start = self.begin.trail, self.request.start_at
        if trail is None:
            return
        if following.count > at.count:
            trail.passed(at.run, following.count - start, text.decode())
        else:
            trail.ended(at.run, at.count - start)

    def _at_its_end(self, stream: Stream) -> Stream:
        """Look whether a stream that has brought all that was promised ends there: nobody will ask it for more."""
        end = stream.position
        if self._promised(end) != end.count:
            return stream
        more = self._read(stream, end)
        while more is None:
            stream = self._stream_at(end)
            more = self._read(stream, end)
        if more:
            raise wrong_index(self.request.reading, stream.position.count - len(more), fewer=False)
        return stream

    def _promised(self, position: At) -> int | None:
        """Where the count of a run ends, when its length is known."""
        each = self.request.reading.length(position.seed)
        if each is None or self.request.repeat < 0:
            return None
        return max(self.request.start_at, self.request.repeat * each - self._run(position).skipped)

    def _check_length(self, position: At, *, at_end: bool) -> None:
        """A length that was promised is kept: an index that is wrong of its shards is an error, not a short epoch."""
        promised = self._promised(position)
        if promised is None or position.count == promised or (position.count < promised and not at_end):
            return
        if at_end and self._run(position).begin is None:
            return  # it was begun by another process, which alone knows where
        raise wrong_index(self.request.reading, promised, fewer=at_end)

    def _read(self, stream: Stream, at: At) -> Records | None:
        """Return the next chunk of `stream`, which is closed when that fails; None when somebody else closed it."""
        most, is_first = self._most(at), at.count == self.request.start_at
        with self.under_way.reading(stream):
            try:
                chunk = stream.next_chunk(most, full=most is not None or not is_first)
                return without(chunk, self.request.absent)
            except BaseException:
                if stream.closed:
                    return None
                stream.close()
                raise

    def _most(self, at: At) -> int | None:
        """Records up to the end of a batch, where chunks hold whole ones: those TensorFlow then need not copy."""
        batch, whole = self.request.batch, self.request.whole_batches
        if batch is None or not whole:
            return None
        behind = at.count - self.request.start_at
        return batch * (whole if behind else 1) - behind % batch

    def explain(self, state: bytes, last: np.int64, number: np.int64) -> np.bool_:
        """Records behind number `last` are missing before `number` (-1: before the end). Skips or raises."""
        if self._refused is not None:
            raise self._refused
        before = self._position(state) if state else self._latest_begin()
        run = self._run(before)
        at_end = number < 0
        if at_end and run.error is not None:
            raise run.error
        if at_end and run.end == last + 1:
            return np.True_
        stream = self.request.reading.open(before, self.request.account.twin())
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
        try:
            self._mapping.try_on(dict(zip(self.request.names, self._row(record), strict=True)))
        except Exception as error:  # noqa: BLE001  # this is what we came for
            return mapping_error(error, record)
        return MappingError(
            "the mapping failed on this record, and did not when tried again",
            shard=record["__shard__"],
            key=record["__key__"],
        )

    def _position(self, state: bytes, token: int = 0) -> At:
        if state:
            return self._restored(state)
        place = self.begin.next_place(max(1, self.request.repeat)) or Place(self._begun())
        key = random.SystemRandom().getrandbits(62)
        position = self._at(place, key) if place.position is None else self._opened_at(place, key, token)
        run = self._run(position)
        run.begin, run.skipped = position, place.records
        if self.begin.trail is not None:
            self.begin.trail.began(key, place)
        return position

    def _at(self, place: Place, key: int) -> At:
        """The position of a place, found by counting."""
        request = self.request
        begin = replace(request.reading.begin(place.epoch, self._seed, request.repeat), run=key)
        return replace(self._behind(begin, place.records + request.start_at), count=request.start_at)

    def _opened_at(self, place: Place, key: int, token: int) -> At:
        """The position of a place, reached from one shortly before it; the stream that stands there goes on."""
        assert place.position is not None
        at = self.request.reading.parse(place.position)
        stream = self._stream_at(replace(at, run=key, count=self.request.start_at - place.skip))
        stream.discard(place.skip)
        self._pool.put(stream.position.to_text().encode(), stream, token)
        return stream.position

    def has_records(self, place: Place, records: int) -> bool:
        """Return whether so many records follow a place; they are read, and not counted."""
        request, account = self.request, self.request.account.twin()
        at = self._at(place, 0) if place.position is None else request.reading.parse(place.position)
        stream = request.reading.open(at, account)
        try:
            stream.discard(place.skip)
            while records > 0 and (chunk := stream.next_chunk(records)):
                records -= len(chunk)
            return records <= 0
        finally:
            stream.close()

    def _restored(self, state: bytes) -> At:
        """An iterator that begins behind one that was restored does so in a later epoch."""
        at = self.request.reading.parse(state.decode())
        with self._lock:
            self._next_epoch = max(self._next_epoch, at.epoch + max(0, at.epochs_left) + 1)
        return at

    @property
    def _seed(self) -> int:
        """The seed of an iterator that begins."""
        seed = self.request.seed
        return seed.value if self.begin.seed is None or not seed.drawn else self.begin.seed

    def _begun(self) -> int:
        """The epoch of an iterator that begins; of those without an end each does so one later than the last."""
        with self._lock:
            epoch = self._next_epoch
            self._next_epoch += max(1, self.request.repeat)
        return epoch

    def _behind(self, position: At, records: int) -> At:
        return self.request.reading.behind(position, records, self.request.account) if records else position

    def _run(self, position: At) -> _Run:
        with self._lock:
            run = self._runs.setdefault(position.run, _Run())
            self._runs.move_to_end(position.run)
            if len(self._runs) > _REMEMBERED_RUNS:
                self._runs.popitem(last=False)
            return run

    def _latest_begin(self) -> At:
        with self._lock:
            begins = [run.begin for run in self._runs.values() if run.begin is not None]
        return begins[-1]

    def _stream_at(self, at: At) -> Stream:
        return self.request.reading.open(at, self.request.account)

    def _row(self, record: Record) -> list[Any]:
        """The values of one record in the order of the names; text as bytes."""
        row: list[Any] = []
        for name in self.request.names:
            value = record.get(name, b"")
            row.append(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)
        return row

    def _as_arrays(self, following: bytes, at: At, chunk: Records, *, again: bool = False) -> tuple[Any, ...]:
        position = b"" if self._mapping is None else at.to_text().encode()
        columns = (self._column(name, chunk) for name in self.request.handed)
        return following, np.bool_(again or bool(chunk)), position, np.int64(at.count), *columns

    def _column(self, name: str, chunk: Records) -> Any:
        request = self.request
        if name == DIFFERENCE:
            return as_column(differences(chunk, request.names))
        optional = name in request.optional or isinstance(request.mapping, PythonMapping)
        return column_of(chunk, name, optional=optional)


@dataclass
class _Run:
    """What is known of one iterator, or of several that share a checkpoint."""

    begin: At | None = None
    end: int | None = None  # records that it had
    error: Exception | None = None
    skipped: int = 0  # records of the first epoch before its begin
    left_at: float | None = None  # when the last chunk was handed out
