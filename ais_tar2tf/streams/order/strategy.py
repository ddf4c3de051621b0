"""`OrderStrategy`: the interface of a shuffle mode. This module must not do I/O.

A mode decides the order of steps, takes records from lanes in this order, and finds positions in the order. To add a
mode, write a module with a subclass of `OrderStrategy`, and add a line to `strategies.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ais_tar2tf.options import Shuffle
from ais_tar2tf.records import Records
from ais_tar2tf.streams.index.entry import Cut, ShardIndex
from ais_tar2tf.streams.order.positions import Mark, Position

__all__ = ["EntryOf", "LaneReader", "Order", "OrderStrategy", "RecordLane"]

EntryOf = Callable[[int], ShardIndex]
"""Returns the index entry of the shard with this number. The entry says where the shard's records begin."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one host in one epoch, as steps: at each step, the host reads a shard or a part of a shard.

    Attributes:
        shards: For each step, the number of its shard.
        part: A function of a step's number. It returns the records that this step reads in its shard, or None if the
            step reads the whole shard.
        by_single_records: Whether each step reads one record.
    """

    shards: Sequence[int]
    part: Callable[[int], Cut | None] = lambda _: None
    by_single_records: bool = False

    def cut(self, step: int, entry_of: EntryOf) -> Cut:
        """Return the records that a step reads: the records of its part, or all records of its shard."""
        return self.part(step) or Cut(0, entry_of(self.shards[step]).records)


class RecordLane(Protocol):
    """A lane: a sequence of shards whose records are read one after another."""

    @property
    def mark(self) -> Mark:
        """The mark of the record that `take` returns next."""
        ...

    @property
    def last_shard(self) -> Mark:
        """The step and the identity of the shard whose records `take` last returned, as a mark without an offset."""
        ...

    def take(self, most: int, most_bytes: int, *, of_archive: bool = False) -> tuple[Records, int]:
        """Return the next records, which are all of one shard, and their size. At the lane's end, return no records.

        Args:
            most: The maximum number of records.
            most_bytes: The record that reaches this number of bytes is the last one.
            of_archive: Whether the size of a record is its size in the archive, which does not depend on the selected
                fields. Otherwise the size of the selected fields counts.
        """
        ...


class LaneReader(ABC):
    """A reader that returns the records of open lanes in the order of a mode.

    Attributes:
        position: The position of the record that is returned next.
    """

    position: Position

    @abstractmethod
    def start(self, lanes: Sequence[RecordLane], position: Position) -> None:
        """Begin to read from these lanes. Each lane is open at its mark in `position`."""

    @abstractmethod
    def next_records(self, most: int, most_bytes: int, *, full: bool) -> Records:
        """Return the next records. At the end of the epoch, return no records.

        Args:
            most: The maximum number of records.
            most_bytes: The record that reaches this number of bytes is the last one.
            full: If True, wait until a limit is reached or the epoch ends. If False, the records that have arrived
                may be returned at once.
        """

    @abstractmethod
    def clear(self) -> None:
        """Drop the lanes, and all records that were read but not returned."""


class OrderStrategy(ABC):
    """A shuffle mode. The order depends on the options of the mode, the seed and the epoch alone."""

    name: ClassVar[str]
    """The name of the mode in errors and in the checkpoints of datasets."""

    by_single_records: ClassVar[bool] = False
    """Whether each step of the order reads one record, which needs an index. Otherwise a step reads a shard."""

    shuffle: Shuffle | None = None
    """The option that asks for this mode."""

    lanes: int = 1
    """The number of shards that are read at once."""

    reshuffles: bool = False
    """Whether each epoch has another order."""

    def shards(self, count: int, seed: int, epoch: int) -> Sequence[int]:
        """Return the numbers of `count` shards in the order of this mode. All hosts share this order."""
        raise NotImplementedError

    def single_records(
        self, counts: Sequence[int], host: int, hosts: int, records: int, seed: int, epoch: int
    ) -> Order:
        """Return the order of a host that reads single records, cut to its first `records` steps.

        Args:
            counts: The number of records of each shard.
            host: The number of the host among `hosts`.
            hosts: The number of hosts.
            records: The number of steps.
            seed: The seed of the order.
            epoch: The number of the epoch.
        """
        raise NotImplementedError

    @abstractmethod
    def reader(self, stream: int) -> LaneReader:
        """Return a reader of lanes. `stream` is `Plan.stream`, by which a mode may shuffle each host's records anew.

        Each host has another number, except hosts that take turns at the same records.
        """

    @abstractmethod
    def seek(self, position: Position, order: Order, records: int, entry_of: EntryOf) -> Position:
        """Return the position after the first `records` records of an epoch.

        Args:
            position: The start of the epoch.
            order: The order of the epoch.
            records: The number of records before the position, smaller than the number of records in the epoch.
            entry_of: Returns the index entry of a shard.
        """

    def step_records(self, order: Order, entry_of: EntryOf) -> int:
        """Return the number of records in all steps of an order."""
        cuts = (order.cut(step, entry_of) for step in range(len(order.shards)))
        return sum(cut.stop - cut.first for cut in cuts)

    @property
    def described(self) -> Mapping[str, Any]:
        """The options that the order depends on, by the names under which an error shows them."""
        return {}

    @property
    def fingerprint(self) -> list[Any] | None:
        """The options that the order depends on, for the fingerprint of a plan; None if there are none."""
        return None

    def among(self, parts: int) -> Shuffle | None:  # noqa: ARG002  # used by modes that divide their memory
        """Return the option that shuffles each source of a mixture of `parts` sources."""
        return self.shuffle
