"""The global shuffle: one permutation of all records of all shards. Each record is read by itself. No I/O.

Only a few blocks of the permutation are held in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ais_tar2tf.options import Shuffle
from ais_tar2tf.streams.index.entry import Cut
from ais_tar2tf.streams.order.permutations import LargePermutation
from ais_tar2tf.streams.order.positions import Mark, Position
from ais_tar2tf.streams.order.strategy import EntryOf, LaneReader, Order, OrderStrategy
from ais_tar2tf.streams.order.template_order import OneLane

__all__ = ["GlobalShuffle"]


class GlobalShuffle(OrderStrategy):
    """A shuffle mode in which every step reads one record, of any shard."""

    name = "global"
    by_single_records = True

    def __init__(self, shuffle: Shuffle) -> None:
        self.shuffle = shuffle
        self.reshuffles = shuffle.reshuffle_each_epoch

    def single_records(
        self, counts: Sequence[int], host: int, hosts: int, records: int, seed: int, epoch: int
    ) -> Order:
        steps = _Steps(counts, host, hosts, records, seed, epoch if self.reshuffles else 0)
        return Order(steps, steps.part, by_single_records=True)

    def reader(self, stream: int) -> LaneReader:  # noqa: ARG002
        return OneLane()

    def seek(self, position: Position, order: Order, records: int, entry_of: EntryOf) -> Position:  # noqa: ARG002
        """Set the step to `records`: every step is one record of this host."""
        return replace(position, marks=(Mark(records),), read_for_all=0)

    def step_records(self, order: Order, entry_of: EntryOf) -> int:  # noqa: ARG002
        return len(order.shards)

    @property
    def fingerprint(self) -> list[Any]:
        return ["whole", self.reshuffles]


class _Steps(Sequence[int]):
    """The shards of the `count` steps of one host: the places `first`, `first + stride`, … of the permutation."""

    def __init__(self, counts: Sequence[int], first: int, stride: int, count: int, *words: int) -> None:
        self._ends = np.cumsum(np.asarray(counts, np.int64))
        total = int(self._ends[-1]) if len(self._ends) else 0
        self._permutation = LargePermutation(total, *words)
        self._first = first
        self._stride = stride
        self._count = count if total else 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, which: int) -> int: ...
    @overload
    def __getitem__(self, which: slice) -> list[int]: ...
    def __getitem__(self, which: int | slice) -> int | list[int]:
        if isinstance(which, slice):
            return [self.record(step)[0] for step in range(self._count)[which]]
        return self.record(range(self._count)[which])[0]

    def record(self, step: int) -> tuple[int, int]:
        """Return (shard, number in it) of a step's record; after the last record, the order begins again."""
        record = self._permutation.at((self._first + step * self._stride) % len(self._permutation))
        shard = int(np.searchsorted(self._ends, record, side="right"))
        return shard, record - (int(self._ends[shard - 1]) if shard else 0)

    def part(self, step: int) -> Cut:
        """Return the record of a step as a part of its shard."""
        _, record = self.record(step)
        return Cut(record, record + 1)
