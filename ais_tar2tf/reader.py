"""fetch → archive → records: the records of a plan, from any position on, and the position behind each of them.

A *lane* reads its shards one after another. A *stream* hands records out in the plan's order: one lane as it
comes, or windows over several lanes, permuted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Members, ShardArchive
from ais_tar2tf.errors import ArchiveError, StoreError
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.plan import Mark, Plan, Position
from ais_tar2tf.records import Grouper, Grouping, Record, RecordBatch, Selection
from ais_tar2tf.stores import Identity, Store

__all__ = ["RecordStream", "Shards"]

_LEAST_READ_AHEAD = 4 * MIB  # of one lane, however many there are


@dataclass(frozen=True)
class Shards:
    """What is read, and how: everything a lane needs beside where to begin."""

    store: Store
    names: Sequence[str]
    read: Read = field(default_factory=Read)
    grouping: Grouping = "first-dot"
    selection: Selection | None = None
    streams: weakref.WeakSet[RecordStream] = field(default_factory=lambda: weakref.WeakSet[RecordStream]())

    def close(self) -> None:
        """No stream of these shards stays open, and no connection is kept."""
        for stream in list(self.streams):
            stream.close()
        self.store.close()


class _Shard:
    """The shard that a lane is in: its archive and its grouping."""

    def __init__(self, shards: Shards, name: str, mark: Mark, account: Account) -> None:
        url, limits = shards.store.url(name), shards.read.limits
        self.at = mark.at
        self.grouper = Grouper(url, account, limits, grouping=shards.grouping, selection=shards.selection)
        self.archive = ShardArchive(
            url,
            limits,
            start=mark.offset,
            compressed=mark.compressed if mark.offset else None,
            wanted=self.grouper.wants,
            allow_missing_end=shards.read.allow_missing_end,
        )
        self.members: Iterator[Members] = iter(())


class _Lane:
    """Every `step`-th shard of an order, from a mark on."""

    def __init__(
        self, shards: Shards, order: Sequence[int], step: int, mark: Mark, account: Account, read_ahead: int
    ) -> None:
        self._shards = shards
        self._order = order
        self._step = step
        self._account = account
        self._start = mark
        self._closed = False
        self._fetch = Fetch(shards.store, self._spans(), shards.read, account, read_ahead_bytes=read_ahead)
        self._next_at = mark.at
        self._shard: _Shard | None = None
        self._batch = RecordBatch()
        self._taken = 0  # of the batch
        self._of_batch = mark  # the batch's shard, as a mark
        self._behind = mark  # where the first record behind the batch begins

    def take(self, most: int, most_bytes: int) -> tuple[list[Record], int]:
        """Up to `most` records, and their bytes; it ends with the record that reaches `most_bytes`. [] at the end."""
        while self._taken == len(self._batch.records):
            if not self._advance():
                return [], 0
        begin, sizes = self._taken, self._batch.sizes
        end, total = begin, 0
        last = min(len(sizes), begin + most)
        while end < last and (end == begin or total < most_bytes):
            total += sizes[end]
            end += 1
        self._taken = end
        return self._batch.records[begin:end], total

    @property
    def mark(self) -> Mark:
        """Of the next record that `take` will give."""
        if self._taken < len(self._batch.records):
            return replace(self._of_batch, offset=self._batch.offsets[self._taken])
        return self._behind

    @property
    def identity(self) -> Identity:
        """Of the shard whose records came last."""
        return self._of_batch.identity

    def close(self) -> None:
        self._closed = True
        self._fetch.close()

    def _spans(self) -> Iterator[Span]:
        mark, names = self._start, self._shards.names
        for at in range(mark.at, len(self._order), self._step):
            name = names[self._order[at]]
            if at == mark.at:
                yield Span(name, 0 if mark.compressed else mark.offset, mark.identity)
            else:
                yield Span(name)

    def _advance(self) -> bool:
        """Read the next few members, or open the next shard; False behind the last."""
        shard = self._shard
        if shard is None:
            return self._open_next()
        try:
            self._read_on(shard)
        except (StoreError, ArchiveError) as error:
            if self._closed:
                raise  # nothing is wrong with the shard
            self._leave(shard)
            self._account.shard_error(error)
        return True

    def _open_next(self) -> bool:
        span = self._fetch.next_shard()
        if span is None:
            return False
        at = self._next_at
        self._next_at += self._step
        self._shard = _Shard(
            self._shards, span.name, self._start if at == self._start.at else Mark(at), self._account
        )
        self._account.add(shards=1)
        return True

    def _read_on(self, shard: _Shard) -> None:
        members = next(shard.members, None)
        if members is not None:
            self._show(shard, shard.grouper.add(members))
            kept = shard.grouper.kept_back_at
            if kept is not None:
                self._behind = replace(self._of_batch, offset=kept)
            return
        block = self._fetch.read()
        if block:
            shard.members = shard.archive.feed(block)
            return
        shard.archive.finish()
        self._show(shard, shard.grouper.finish())
        self._leave(shard)

    def _show(self, shard: _Shard, batch: RecordBatch) -> None:
        self._batch, self._taken = batch, 0
        self._of_batch = Mark(shard.at, 0, bool(shard.archive.compressed), self._fetch.identity)

    def _leave(self, shard: _Shard) -> None:
        self._account.add(ignored=shard.archive.ignored)
        self._shard = None
        self._behind = Mark(self._next_at)


class RecordStream:
    """The records of a plan from `position` on, in chunks; between two chunks, `position` says where it is."""

    def __init__(self, shards: Shards, plan: Plan, position: Position, account: Account) -> None:
        self._shards = shards
        self._plan = plan
        self._account = account
        self._limits = shards.read.limits
        self.position: Position = position
        self._lanes: list[_Lane] = []
        self._window: list[Record] = []
        self._behind_window: Position | None = None
        self._failure: Exception | None = None
        self.closed: bool = False
        shards.streams.add(self)
        self._open_lanes()

    def next_chunk(self, most: int | None = None, *, full: bool = False) -> list[Record]:
        """The next records, at most `most` and the chunk's limits; [] at the end.

        `full` waits for more where a chunk would be far below its limits: where each costs more than its records.
        """
        most = min(most or self._limits.chunk_records, self._limits.chunk_records)
        while not self.closed:
            chunk = self._next_in_window(most) if self._plan.shuffle is not None else self._next_in_order(most, full)
            if chunk:
                self.position = replace(self.position, count=self.position.count + len(chunk))
                return chunk
            if not self._begin_next_epoch():
                return chunk
        raise StoreError("these shards were closed while they were read", url=self._shards.store.url(""))

    @property
    def identity(self) -> Identity:
        """Of the shard whose records came last, from the first lane."""
        return self._lanes[0].identity

    def discard(self, count: int) -> None:
        """Go on `count` records later."""
        while count > 0:
            chunk = self.next_chunk(count)
            if not chunk:
                return
            count -= len(chunk)

    def close(self) -> None:
        self.closed = True
        self._close_lanes()

    def _close_lanes(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._window.clear()
        self._behind_window = None

    def _open_lanes(self) -> None:
        position = self.position
        order = self._plan.order(position.epoch, position.seed)
        step = len(position.marks)
        share = max(_LEAST_READ_AHEAD, self._limits.read_ahead_bytes // step)
        self._lanes = [_Lane(self._shards, order, step, mark, self._account, share) for mark in position.marks]

    def _begin_next_epoch(self) -> bool:
        following = self._plan.next_epoch(self.position)
        if following is None:
            return False
        self._close_lanes()
        self.position = following
        self._open_lanes()
        return True

    def _next_in_order(self, most: int, full: bool) -> list[Record]:
        if self._failure is not None:
            raise self._failure
        (lane,) = self._lanes
        chunk, size = lane.take(most, self._limits.chunk_bytes)
        self.position = replace(self.position, marks=(lane.mark,))
        enough = self._limits.chunk_bytes // 2 if full and self.position.count else 0
        while chunk and size < enough and len(chunk) < most:
            try:
                more, more_size = lane.take(most - len(chunk), self._limits.chunk_bytes - size)
            except Exception as error:  # noqa: BLE001  # it comes behind the records before it, in the next call
                self._failure = error
                break
            if not more:
                break
            chunk = chunk + more
            size += more_size
            self.position = replace(self.position, marks=(lane.mark,))
        return chunk

    def _next_in_window(self, most: int) -> list[Record]:
        while self._behind_window is None or self.position.emitted == len(self._window):
            if self._behind_window is not None:
                self.position = replace(self._behind_window, count=self.position.count)
            self._fill_window()
            if not self._window:
                return []
        emitted = self.position.emitted
        chunk = self._window[emitted : emitted + most]
        self._window[emitted : emitted + most] = [{}] * len(chunk)  # handed out: not held here any longer
        self.position = replace(self.position, emitted=emitted + len(chunk))
        return chunk

    def _fill_window(self) -> None:
        """Read the window that begins at the position, in turns over the lanes, and permute it."""
        shuffle = self._plan.shuffle
        assert shuffle is not None
        begin = self.position
        records: list[Record] = []
        size, lane, turn, ended = 0, begin.lane, begin.turn, 0
        while len(records) < shuffle.window and size < shuffle.window_bytes and ended < len(self._lanes):
            most = min(shuffle.turn - turn, shuffle.window - len(records))
            taken, taken_bytes = self._lanes[lane].take(most, shuffle.window_bytes - size)
            records += taken
            size += taken_bytes
            turn += len(taken)
            ended = 0 if taken else ended + 1
            if not taken or turn == shuffle.turn:
                lane, turn = (lane + 1) % len(self._lanes), 0
        self._window = [records[i] for i in self._plan.window_order(len(records), begin)]
        self._behind_window = replace(
            begin,
            marks=tuple(lane.mark for lane in self._lanes),
            lane=lane,
            turn=turn,
            window=begin.window + 1,
            emitted=0,
        )
