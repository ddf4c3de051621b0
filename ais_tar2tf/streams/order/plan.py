"""Plans: which records one host reads in each epoch, and in which order. Pure and deterministic.

The order of an epoch is a sequence of steps (`Order`). Each step is a shard or a part of a shard. *Lanes* read the
steps: of k lanes, lane j reads every k-th step, beginning with step j. Only a window shuffle has more than one lane.

`Plan.order` and `Plan.share` divide an epoch among n hosts. Their result depends on the option `even`, and on whether
the number of records in each shard is known. q is the number of all records divided by n.

    even    known counts   host i of n reads
    None    any            whole shards i, i+n, …; if n exceeds the number of shards, hosts take turns at one shard
    stop    yes            the same, but only as many records as the host with the fewest records has
    pad     yes            records i·q … (i+1)·q of the order, q rounded up; record 0 follows the last record
    drop    yes            records i·q … (i+1)·q of the order, q rounded down
    not None  no           all records, of which it returns every n-th record

In a global shuffle, the table does not apply. Each step is one record, and host i takes the steps i, i+n, … of a
permutation of all records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.options import EVEN, Shuffle
from ais_tar2tf.streams.index.entry import Cut
from ais_tar2tf.streams.order.positions import Mark, Position
from ais_tar2tf.streams.order.strategies import strategy_of
from ais_tar2tf.streams.order.strategy import Order, OrderStrategy

__all__ = ["MOST_EMPTY_EPOCHS", "Plan", "start_after_end"]

MOST_EMPTY_EPOCHS = 1_000
"""After this many epochs without records, in succession, endless epochs end.

If there are few shards, a host may have no records in some epochs.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan by which one host reads its share of the shards.

    The shares of different hosts are disjoint, except that with `even="pad"` some records are in two shares.

    Attributes:
        shards: The number of shards.
        shuffle: The shuffle of the records; None for the order of the template.
        host: The number of this host among `hosts`.
        even: How all hosts get equally many records: one of `EVEN`; None if hosts may get different numbers.
        counts: The number of records of each shard, or None without an index. These counts affect the order only with
            `even`, or in a shuffle mode that reads single records.
        names_digest: A digest of the names of the shards, which is a part of `fingerprint`.
    """

    shards: int
    shuffle: Shuffle | None = None
    host: int = 0
    hosts: int = 1
    even: str | None = None
    counts: Sequence[int] | None = None
    names_digest: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.host < self.hosts:
            raise OptionError(f"shard=(i, n) needs 0 <= i < n, not ({self.host}, {self.hosts})")
        if self.even is not None:
            check_choice("even", self.even, EVEN)
        if self.counts is not None and len(self.counts) != self.shards:
            raise OptionError(f"there are counts of {len(self.counts):,} shards, not of {self.shards:,}")

    @property
    def strategy(self) -> OrderStrategy:
        """The shuffle mode."""
        return strategy_of(self.shuffle)

    @property
    def lanes(self) -> int:
        """The number of shards that are read at once."""
        return self.strategy.lanes

    @property
    def by_records(self) -> bool:
        """Whether each step of the order reads a single record, which needs an index."""
        return self.strategy.by_single_records

    # Shares of hosts.

    @property
    def _in_turns(self) -> bool:
        """Whether every host reads all records, and returns every n-th record (n is `hosts`)."""
        return self.even is not None and self.counts is None and self.hosts > 1

    @property
    def _in_ranges(self) -> bool:
        """Whether every host reads one range of the records in the order, and all ranges are equally long."""
        return self.even in ("pad", "drop") and self.counts is not None and self.hosts > 1

    @property
    def sharing(self) -> str:
        """How hosts share an epoch, in words."""
        if self.by_records:
            return "single records"
        if self._in_turns:
            return "turns at all records"
        return "equal ranges of records" if self._in_ranges else "whole shards"

    @property
    def share(self) -> tuple[int, int]:
        """The pair (k, m): of every m records that this host reads, it returns record k."""
        if self.by_records:
            return 0, 1
        if self._in_turns:
            return self.host, self.hosts
        if self._in_ranges or self.hosts <= self.shards or not self.shards:
            return 0, 1
        return self.host // self.shards, len(range(self.host % self.shards, self.hosts, self.shards))

    @property
    def last_round(self) -> str | None:
        """The value of `even`, which decides what happens to an incomplete last round of turns in an epoch.

        None if hosts do not take turns at all records.
        """
        return self.even if self._in_turns else None

    @property
    def stream(self) -> int:
        """The number of the stream that this host reads. Hosts that take turns at one stream see the same order."""
        if self._in_turns:
            return 0
        return self.host if self.share == (0, 1) else self.host % self.shards

    def order(self, epoch: int, seed: int) -> Order:
        """Return the steps of this host in an epoch."""
        if self.by_records:
            assert self.counts is not None
            records = self.length(seed) or 0
            return self.strategy.single_records(self.counts, self.host, self.hosts, records, seed, epoch)
        shards = self._shards(epoch, seed)
        if self._in_turns:
            return Order(shards)
        if self._in_ranges:
            begin, end = self._range
            return _record_range(shards, self._counts(shards), begin, end)
        if self.hosts <= self.shards:
            return Order(shards[self.host :: self.hosts])
        return Order(shards[self.host % self.shards :][:1] if self.shards else ())

    def record_limit(self, epoch: int, seed: int) -> int | None:
        """Return the maximum number of records that this host returns in an epoch; None if there is no maximum."""
        if self.by_records or self.even != "stop" or self.counts is None or self.hosts == 1:
            return None
        return min(self._records_of_hosts(self._shards(epoch, seed)))

    def has_fewest(self, epoch: int, seed: int) -> bool:
        """Return whether this host, perhaps with other hosts, has the smallest number of records in the epoch."""
        each = self._records_of_hosts(self._shards(epoch, seed))
        return each[self.host] == min(each)

    def length(self, seed: int) -> int | None:
        """Return the number of this host's records in each epoch; None if it is unknown or differs between epochs."""
        if self.counts is None:
            return None
        total = sum(self.counts)
        if self.hosts == 1:
            return total
        if self.by_records:
            if self.even is None:
                return len(range(self.host, total, self.hosts))
            return self.equal_part(total)
        if self._in_ranges:
            begin, end = self._range
            return end - begin if total else 0
        if self.strategy.reshuffles and len(set(self.counts)) > 1:
            return None
        each = self._records_of_hosts(self._shards(0, seed))
        return min(each) if self.even == "stop" else each[self.host]

    def equal_part(self, total: int) -> int:
        """Divide `total` records equally among the hosts: round up if `even` is "pad", else down."""
        return -(-total // self.hosts) if self.even == "pad" else total // self.hosts

    def _shards(self, epoch: int, seed: int) -> Sequence[int]:
        return self.strategy.shards(self.shards, seed, epoch)

    def _counts(self, shards: Sequence[int]) -> np.ndarray:
        return np.asarray(self.counts, np.int64)[np.asarray(shards, np.int64)]

    @property
    def _range(self) -> tuple[int, int]:
        """The range of records that this host reads. After the last record of the order, the first record follows."""
        assert self.counts is not None
        size = self.equal_part(sum(self.counts))
        return self.host * size, (self.host + 1) * size

    def _records_of_hosts(self, shards: Sequence[int]) -> list[int]:
        """Return the number of records that each host has if hosts read whole shards in the order `shards`."""
        counts = self._counts(shards)
        if self.hosts <= self.shards:
            return [int(counts[host :: self.hosts].sum()) for host in range(self.hosts)]
        hosts_at = [len(range(at, self.hosts, self.shards)) for at in range(self.shards)]
        turns = [divmod(host, self.shards) for host in range(self.hosts)] if self.shards else []
        return [len(range(turn, int(counts[at]), hosts_at[at])) for turn, at in turns] or [0] * self.hosts

    # Positions.

    @property
    def described(self) -> dict[str, Any]:
        """Everything that the order depends on, except shards, seed and epoch, by the names that an error shows."""
        strategy = self.strategy
        return {
            "shuffle": strategy.name,
            **{f"shuffle {name}": value for name, value in strategy.described.items()},
            "reshuffle_each_epoch": strategy.reshuffles,
            "host": f"{self.host} of {self.hosts}",
            "even": self.even,
            "shares by an index": self.counts is not None and self.even is not None and self.hosts > 1,
        }

    @property
    def fingerprint(self) -> str:
        """A digest of everything that the order depends on, except the seed and the epoch.

        `check` refuses positions with another fingerprint.
        """
        shared = "by turns" if self._in_turns else self._in_ranges
        row = [self.names_digest, self.shards, self.strategy.fingerprint, self.host, self.hosts, self.even, shared]
        return hashlib.blake2b(json.dumps(row).encode(), digest_size=6).hexdigest()

    def begin(self, epoch: int, seed: int, epochs: int) -> Position:
        """Return the start of epoch `epoch`, the first of `epochs` epochs (-1: epochs without end)."""
        marks = tuple(Mark(lane) for lane in range(self.lanes))
        return Position(epoch, seed, epochs - 1 if epochs > 0 else -1, marks, fingerprint=self.fingerprint)

    def next_epoch(self, position: Position) -> Position | None:
        """Return the start of the epoch after the epoch of `position`; None after the last epoch."""
        if position.epochs_left == 0:
            return None
        first = self.begin(position.epoch + 1, position.seed, -1)
        left = max(-1, position.epochs_left - 1)
        return replace(first, epochs_left=left, run=position.run, count=position.count)

    def check(self, position: Position) -> None:
        """Raise CheckpointError if `position` belongs to another plan."""
        if position.fingerprint != self.fingerprint or len(position.marks) != self.lanes:
            raise CheckpointError(
                "the checkpoint is of another dataset: other shards, another shuffle, or another share of hosts; "
                "make the dataset as it was made when the checkpoint was saved, or use start_at="
            )


def start_after_end(start_at: int, records: int) -> OptionError:
    """Return the error for a dataset that would start after the last of its records."""
    return OptionError(f"start_at={start_at:,} is behind the end: there are {records:,} records in this order")


def _record_range(shards: Sequence[int], counts: np.ndarray, begin: int, end: int) -> Order:
    """Return the order of the records `begin` to `end` of `shards`. Record 0 follows the last record."""
    numbers: list[int] = []
    cuts: dict[int, Cut] = {}
    for at, cut in _cuts(np.cumsum(counts), begin, end):
        if cut.first or cut.stop < counts[at]:
            cuts[len(numbers)] = cut
        numbers.append(shards[at])
    return Order(numbers, cuts.get)


def _cuts(ends: np.ndarray, begin: int, end: int) -> Iterator[tuple[int, Cut]]:
    """Yield (index in the order, records) of every shard that has some of the records `begin` to `end`."""
    total = int(ends[-1]) if len(ends) else 0
    while begin < end and total:
        at = int(np.searchsorted(ends, begin % total, side="right"))
        before = int(ends[at - 1]) if at else 0
        first = begin % total - before
        stop = min(int(ends[at]) - before, first + end - begin)
        yield at, Cut(first, stop)
        begin += stop - first
