"""The order without a shuffle: shards are read one after another, as the template names them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ais_tar2tf.records import Records
from ais_tar2tf.streams.order.positions import Mark, Position
from ais_tar2tf.streams.order.strategy import EntryOf, LaneReader, Order, OrderStrategy, RecordLane

__all__ = ["OneLane", "TemplateOrder", "mark_at"]


class TemplateOrder(OrderStrategy):
    """The strategy without a shuffle: records come in the order in which the template names their shards."""

    name = "none"

    def shards(self, count: int, seed: int, epoch: int) -> Sequence[int]:  # noqa: ARG002
        return range(count)

    def reader(self, stream: int) -> LaneReader:  # noqa: ARG002
        return OneLane()

    def seek(self, position: Position, order: Order, records: int, entry_of: EntryOf) -> Position:
        for step in range(len(order.shards)):
            cut = order.cut(step, entry_of)
            if records < cut.stop - cut.first:
                return replace(position, marks=(mark_at(order, step, cut.first + records, entry_of),))
            records -= cut.stop - cut.first
        return replace(position, marks=(Mark(len(order.shards)),))


class OneLane(LaneReader):
    """A reader of a single lane. It returns the records in the order in which the lane reads them."""

    def __init__(self) -> None:
        self._failure: Exception | None = None

    def start(self, lanes: Sequence[RecordLane], position: Position) -> None:
        (self._lane,) = lanes
        self.position = position

    def next_records(self, most: int, most_bytes: int, *, full: bool) -> Records:
        if self._failure is not None:
            raise self._failure
        chunk, size = self._lane.take(most, most_bytes)
        mark = self._lane.mark
        while full and 0 < len(chunk) < most and size < most_bytes:
            try:
                more, more_size = self._lane.take(most - len(chunk), most_bytes - size)
            except Exception as error:  # noqa: BLE001  # the next call raises the error
                self._failure = error
                break
            if not more:
                break
            chunk.extend(more)
            size += more_size
            mark = self._lane.mark
        self.position = replace(self.position, marks=(mark,), count=self.position.count + len(chunk))
        return chunk

    def clear(self) -> None:
        """Do nothing, because this reader holds no records between two calls."""


def mark_at(order: Order, step: int, record: int, entry_of: EntryOf) -> Mark:
    """Return the mark of a record in the shard of a step. `record` is the number of the record in this shard."""
    shard = entry_of(order.shards[step])
    offset = shard.offset(record) if record else 0
    return Mark(step, offset, shard.compressed, shard.identity, shard.number(record))
