"""The window shuffle: it permutes shards, reads several at once, and permutes windows of their records. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ais_tar2tf.options import Shuffle
from ais_tar2tf.records import Records
from ais_tar2tf.streams.order.permutations import permutation
from ais_tar2tf.streams.order.positions import Mark, Position
from ais_tar2tf.streams.order.strategy import EntryOf, LaneReader, Order, OrderStrategy, RecordLane
from ais_tar2tf.streams.order.template_order import mark_at
from ais_tar2tf.streams.order.window_buffer import WindowBuffer
from ais_tar2tf.streams.order.windows import cut_batch, fill_window

__all__ = ["WindowShuffle"]


class WindowShuffle(OrderStrategy):
    """A shuffle mode that permutes shards, reads several of them in turns, and permutes windows of records."""

    name = "windows"

    def __init__(self, shuffle: Shuffle) -> None:
        self.shuffle = self._shuffle = shuffle
        self.lanes = shuffle.shards
        self.reshuffles = shuffle.reshuffle_each_epoch

    def shards(self, count: int, seed: int, epoch: int) -> Sequence[int]:
        return permutation(count, seed, epoch if self.reshuffles else 0)

    def window_order(self, count: int, position: Position, stream: int) -> Sequence[int]:
        """Return the order of the `count` records of the window that begins at `position`."""
        epoch = position.epoch if self.reshuffles else 0
        return permutation(count, position.seed, epoch, position.window, stream)

    def reader(self, stream: int) -> LaneReader:
        return _WindowReader(self, self._shuffle, stream)

    def seek(self, position: Position, order: Order, records: int, entry_of: EntryOf) -> Position:
        """Find the position without reading: fill windows with the sizes that the index states for the records."""
        lanes = [_SeekingLane(order, self.lanes, mark.step, entry_of) for mark in position.marks]

        def take(lane: int, most: int, most_bytes: int) -> tuple[int, int]:
            return lanes[lane].take(most, most_bytes)

        while True:
            position = replace(position, marks=tuple(lane.mark for lane in lanes))
            count, lane, turn = fill_window(self._shuffle, len(lanes), position.lane, position.turn, take)
            if records < count or not count:
                return replace(position, emitted=min(records, count))
            records -= count
            position = replace(position, lane=lane, turn=turn, window=position.window + 1)

    @property
    def described(self) -> Mapping[str, Any]:
        return {
            "window": self._shuffle.window,
            "window_bytes": self._shuffle.window_bytes,
            "shards read at once": self._shuffle.shards,
            "turn": self._shuffle.in_turn,
        }

    @property
    def fingerprint(self) -> list[Any]:
        shuffle = self._shuffle
        return [shuffle.window, shuffle.window_bytes, shuffle.shards, shuffle.in_turn, shuffle.reshuffle_each_epoch]

    def among(self, parts: int) -> Shuffle:
        """Return the shuffle of one of `parts` mixed sources; their windows together take the bytes of one."""
        return replace(self._shuffle, window_bytes=max(1, self._shuffle.window_bytes // parts))


class _WindowReader(LaneReader):
    """Returns the records of one permuted window after another. A window is filled from several lanes."""

    def __init__(self, strategy: WindowShuffle, shuffle: Shuffle, stream: int) -> None:
        self._strategy = strategy
        self._shuffle = shuffle
        self._stream = stream
        self._window = WindowBuffer(shuffle.window_bytes)
        self._lanes: Sequence[RecordLane] = ()
        self._next_window: Position | None = None  # where the window after the current one begins

    def start(self, lanes: Sequence[RecordLane], position: Position) -> None:
        self.clear()
        self._lanes = lanes
        self.position = position

    def clear(self) -> None:
        self._lanes = ()
        self._window.clear()
        self._next_window = None

    def next_records(self, most: int, most_bytes: int, *, full: bool) -> Records:  # noqa: ARG002  # it waits anyway
        while self._next_window is None or self.position.emitted == len(self._window):
            if self._next_window is not None:
                self.position = replace(self._next_window, count=self.position.count)
            self._fill_window()
            if not len(self._window):
                return Records()
        at = self.position
        chunk = self._window.take(at.emitted, most, most_bytes)
        self.position = replace(at, emitted=at.emitted + len(chunk), count=at.count + len(chunk))
        return chunk

    def _fill_window(self) -> None:
        """Read the window that begins at the position, and permute it.

        The marks of the position get the identities of the window's shards. After a restart, reading the window
        again from a checkpoint fails if one of these shards was replaced.
        """
        begin = self.position
        marks, identified = list(begin.marks), set[int]()
        self._window.clear()

        def take(lane: int, most: int, most_bytes: int) -> tuple[int, int]:
            records, size = self._lanes[lane].take(most, most_bytes, of_archive=True)
            self._window.add(records, size)
            if records and lane not in identified:
                identified.add(lane)
                marks[lane] = marks[lane].with_identity_of(self._lanes[lane].last_shard)
            return len(records), size

        _, lane, turn = fill_window(self._shuffle, len(self._lanes), begin.lane, begin.turn, take)
        self._window.permute(self._strategy.window_order(len(self._window), begin, self._stream))
        self.position = replace(begin, marks=tuple(marks))
        next_marks = tuple(lane.mark for lane in self._lanes)
        self._next_window = replace(begin, marks=next_marks, lane=lane, turn=turn, window=begin.window + 1, emitted=0)


class _SeekingLane:
    """A lane that takes the counts and sizes of records from the index, and reads nothing."""

    def __init__(self, order: Order, lanes: int, step: int, entry_of: EntryOf) -> None:
        self._order = order
        self._lanes = lanes
        self._entry_of = entry_of
        self._step = step
        self._open()

    def _open(self) -> None:
        self._sizes: list[int] = []
        self._first = 0  # `_sizes` begins with this record of the shard
        self._taken = 0  # records of `_sizes` that were taken
        if self._step < len(self._order.shards):
            shard = self._entry_of(self._order.shards[self._step])
            cut = self._order.cut(self._step, self._entry_of)
            self._sizes = shard.all_extents()[cut.first : cut.stop]
            self._first = cut.first

    def take(self, most: int, most_bytes: int) -> tuple[int, int]:
        """Return the number and the bytes of the records that a real lane would return; (0, 0) at its end."""
        while self._taken == len(self._sizes):
            if self._step >= len(self._order.shards):
                return 0, 0
            self._step += self._lanes
            self._open()
        begin = self._taken
        self._taken, total = cut_batch(self._sizes, begin, most, most_bytes)
        return self._taken - begin, total

    @property
    def mark(self) -> Mark:
        if self._taken < len(self._sizes):
            return mark_at(self._order, self._step, self._first + self._taken, self._entry_of)
        return Mark(self._step + self._lanes if self._sizes else self._step)
