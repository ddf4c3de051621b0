"""The records of a plan in its order: one lane as it comes, or windows over several lanes, permuted."""

from __future__ import annotations

from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.errors import StoreError
from ais_tar2tf.plan import Plan, Position
from ais_tar2tf.plan.windows import fill_window
from ais_tar2tf.reader.epochs import EpochStream
from ais_tar2tf.reader.lane import Lane
from ais_tar2tf.reader.shards import Shards
from ais_tar2tf.reader.window import Window
from ais_tar2tf.records import Records
from ais_tar2tf.stores import Identity

__all__ = ["RecordStream"]


class RecordStream(EpochStream):
    """The records of a plan from `position` on, in chunks; between two chunks, `position` says where it is."""

    def __init__(self, shards: Shards, plan: Plan, position: Position, account: Account) -> None:
        self._shards = shards
        self._plan = plan
        self._account = account
        self._limits = shards.read.limits
        lanes = len(position.marks)
        self._of_lane = shards.among(shards.read.of_lane(lanes), lanes) if lanes > 1 else shards
        self.position: Position = position
        self._lanes: list[Lane] = []
        self._window = Window(0 if plan.shuffle is None else plan.shuffle.window_bytes)
        self._behind_window: Position | None = None
        self._failure: Exception | None = None
        self._closed = False
        shards.streams.add(self)
        self._open_lanes()

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        if self._closed:
            raise StoreError("these shards were closed while they were read", url=self._shards.store.url(""))
        most = min(most or self._limits.chunk_records, self._limits.chunk_records)
        chunk = self._next_in_window(most) if self._plan.in_windows else self._next_in_order(most, full)
        if chunk:
            self.position = replace(self.position, count=self.position.count + len(chunk))
        return chunk

    @property
    def chunk_bytes(self) -> int:
        assert self._of_lane.tuning is not None
        return self._of_lane.tuning.chunk_bytes

    @property
    def identity(self) -> Identity:
        """Of the shard whose records came last, from the first lane."""
        return self._lanes[0].read.identity

    def read_ahead(self) -> None:
        """Open the first shard of each lane, so that its bytes come before they are asked for."""
        for lane in self._lanes:
            lane.read_ahead()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, *, grace: float = 0.0) -> None:
        """Close all lanes; `grace` as `Fetch.close` takes it."""
        self._closed = True
        self._close_lanes(grace)

    def _close_lanes(self, grace: float = 0.0) -> None:
        for lane in self._lanes:
            lane.close(grace=grace)
        self._lanes.clear()
        self._window.clear()
        self._behind_window = None

    def _open_lanes(self) -> None:
        position = self.position
        order = self._plan.order(position.epoch, position.seed)
        step = len(position.marks)
        self._lanes = [Lane(self._of_lane, order, step, mark, self._account) for mark in position.marks]

    def begin_next_epoch(self) -> bool:
        following = self._plan.next_epoch(self.position)
        if following is None:
            return False
        self._close_lanes()
        self.position = following
        self._open_lanes()
        return True

    def _next_in_order(self, most: int, full: bool) -> Records:
        if self._failure is not None:
            raise self._failure
        (lane,) = self._lanes
        chunk_bytes = self.chunk_bytes
        chunk, size = lane.take(most, chunk_bytes)
        self.position = replace(self.position, marks=(lane.mark,))
        while full and 0 < len(chunk) < most and size < chunk_bytes:
            try:
                more, more_size = lane.take(most - len(chunk), chunk_bytes - size)
            except Exception as error:  # noqa: BLE001  # it comes behind the records before it, in the next call
                self._failure = error
                break
            if not more:
                break
            chunk.extend(more)
            size += more_size
            self.position = replace(self.position, marks=(lane.mark,))
        return chunk

    def _next_in_window(self, most: int) -> Records:
        while self._behind_window is None or self.position.emitted == len(self._window):
            if self._behind_window is not None:
                self.position = replace(self._behind_window, count=self.position.count)
            self._fill_window()
            if not len(self._window):
                return Records()
        chunk = self._window.take(self.position.emitted, most, self.chunk_bytes)
        self.position = replace(self.position, emitted=self.position.emitted + len(chunk))
        return chunk

    def _fill_window(self) -> None:
        """Read the window that begins at the position, in turns over the lanes, and permute it.

        Whoever reads it again, from a checkpoint, is then to find the same content where it began.
        """
        shuffle = self._plan.shuffle
        assert shuffle is not None
        begin = self.position
        marks, bound = list(begin.marks), set[int]()
        window = self._window
        window.clear()

        def take(lane: int, most: int, most_bytes: int) -> tuple[int, int]:
            taken, taken_bytes = self._lanes[lane].take(most, most_bytes, of_archive=True)
            window.add(taken, taken_bytes)
            if taken and lane not in bound:
                bound.add(lane)
                marks[lane] = marks[lane].bound_to(self._lanes[lane].read)
            return len(taken), taken_bytes

        _, lane, turn = fill_window(shuffle, len(self._lanes), begin.lane, begin.turn, take)
        window.permute(self._plan.window_order(len(window), begin))
        self.position = replace(begin, marks=tuple(marks))
        self._behind_window = replace(
            begin,
            marks=tuple(lane.mark for lane in self._lanes),
            lane=lane,
            turn=turn,
            window=begin.window + 1,
            emitted=0,
        )
