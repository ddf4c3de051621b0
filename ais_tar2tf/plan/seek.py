"""The position behind so many records, worked out from an index: what reading them would lead to, without reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ais_tar2tf.options import Shuffle
from ais_tar2tf.plan import Mark, Order, Plan, Position, behind_the_end
from ais_tar2tf.plan.windows import cut_batch, fill_window
from ais_tar2tf.shard_index import Cut, ShardIndex

__all__ = ["seek"]

Known = Callable[[int], ShardIndex]
"""What the index says of the shard with this number; it says where records begin."""


def seek(plan: Plan, begin: Position, records: int, known: Known) -> Position:
    """Where a host is that handed out `records` from `begin`, the start of an epoch, on."""
    _, each = plan.share
    position, asked = begin, records
    while True:
        order = plan.order(position.epoch, position.seed)
        here = _of_host(plan, position, order, known)
        if records < here:
            found = _in_epoch(plan, position, order, records * each, known)
            return replace(found, number=records * each)
        records -= here
        following = plan.next_epoch(position)
        if following is None:
            if records:
                raise behind_the_end(asked, asked - records)
            return _end(plan, position, order)
        if not here and position.epochs_left < 0:
            return following  # there is nothing, for ever
        position = following


def _of_host(plan: Plan, position: Position, order: Order, known: Known) -> int:
    """Records that the host gets in the epoch of `position`."""
    turn, each = plan.share
    total = sum(cut.behind - cut.first for cut in _cuts(order, known))
    if plan.last_round is None:
        mine = len(range(turn, total, each))
    else:
        mine = -(-total // each) if plan.last_round == "pad" else total // each
    most = plan.most(position.epoch, position.seed)
    return mine if most is None else min(mine, most)


def _cuts(order: Order, known: Known) -> list[Cut]:
    return [order.cuts.get(at) or Cut(0, known(shard).records) for at, shard in enumerate(order.shards)]


def _end(plan: Plan, position: Position, order: Order) -> Position:
    """Behind the last record of all."""
    step = plan.lanes
    behind = [len(range(lane, len(order.shards), step)) * step + lane for lane in range(step)]
    most = plan.most(position.epoch, position.seed)
    _, each = plan.share
    return replace(position, marks=tuple(map(Mark, behind)), number=0 if most is None else most * each)


def _in_epoch(plan: Plan, position: Position, order: Order, records: int, known: Known) -> Position:
    if plan.shuffle is not None:
        lanes = [_Lane(order, plan.lanes, mark.at, known) for mark in position.marks]
        return _behind_windows(plan.shuffle, position, lanes, records)
    for at, cut in enumerate(_cuts(order, known)):
        here = cut.behind - cut.first
        if records < here:
            return replace(position, marks=(_mark(order, at, cut.first + records, known),))
        records -= here
    return replace(position, marks=(Mark(len(order.shards)),))


def _mark(order: Order, at: int, record: int, known: Known) -> Mark:
    shard = known(order.shards[at])
    offset = shard.offset(record) if record else 0
    return Mark(at, offset, shard.compressed, shard.identity, shard.number(record))


class _Lane:
    """A lane of the reader that takes records it has not got."""

    def __init__(self, order: Order, step: int, at: int, known: Known) -> None:
        self._order = order
        self._step = step
        self._known = known
        self._at = at
        self._open()

    def _open(self) -> None:
        self._extents: list[int] = []
        self._next = self._first = 0
        if self._at < len(self._order.shards):
            shard = self._known(self._order.shards[self._at])
            cut = self._order.cuts.get(self._at) or Cut(0, shard.records)
            self._extents = shard.all_extents()[cut.first : cut.behind]
            self._first = cut.first

    def take(self, most: int, most_bytes: int) -> tuple[int, int]:
        """How many records `take` of the reader's lane would give in one shard, and their bytes; none at the end."""
        while self._next == len(self._extents):
            if self._at >= len(self._order.shards):
                return 0, 0
            self._at += self._step
            self._open()
        begin = self._next
        self._next, total = cut_batch(self._extents, begin, most, most_bytes)
        return self._next - begin, total

    @property
    def mark(self) -> Mark:
        if self._next < len(self._extents):
            return _mark(self._order, self._at, self._first + self._next, self._known)
        return Mark(self._at + self._step if self._extents else self._at)


def _behind_windows(shuffle: Shuffle, position: Position, lanes: list[_Lane], records: int) -> Position:
    """The start of the window that has the record, and how many of it came before."""

    def take(lane: int, most: int, most_bytes: int) -> tuple[int, int]:
        return lanes[lane].take(most, most_bytes)

    while True:
        marks = tuple(lane.mark for lane in lanes)
        position = replace(position, marks=marks)
        count, lane, turn = fill_window(shuffle, len(lanes), position.lane, position.turn, take)
        if records < count or not count:
            return replace(position, emitted=min(records, count))
        records -= count
        position = replace(position, lane=lane, turn=turn, window=position.window + 1)
