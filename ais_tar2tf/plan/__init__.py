"""Which shards, in which order, for which host, from which position: pure and deterministic.

An *order* is the sequence of shards that one host reads in one epoch, some of them only in part. It is read by
*lanes*: lane j of k takes every k-th shard from the j-th on. Without a shuffle there is one lane.

How hosts share an epoch (`Plan.order` and `Plan.share`):

    even    known counts   host i of n reads
    None    any            whole shards i, i+n, …; with n above the number of shards, its turns of one shard
    stop    yes            the same, and as many records as the host that has the fewest
    pad     yes            records i·q … (i+1)·q of the order, q rounded up, going on at its start behind its end
    drop    yes            records i·q … (i+1)·q of the order, q rounded down
    any     no             everything, and takes every n-th record

In a global shuffle every step of the order is one record: host i takes steps i, i+n, … of one permutation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ais_tar2tf.documents import parse_row, sealed_row
from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.options import EVEN, Shuffle
from ais_tar2tf.plan.single_records import SingleCuts, SingleRecords
from ais_tar2tf.shard_index import Cut
from ais_tar2tf.stores import Identity
from ais_tar2tf.structure import Check, Mismatch, any_whole, boolean, listed, maybe, row, text, whole

__all__ = ["Mark", "Order", "Plan", "Position", "behind_the_end", "permutation"]

_FORMAT = 1  # of a position's text


def _identity(value: Any) -> Identity:
    """Accept what `Mark.to_json` states of a shard; `seen` is left out where it is empty."""
    seen = [text] * (isinstance(value, list) and len(value) == 5)  # with `seen`
    return Identity(*row(text, text, text, maybe(whole()), *seen)(value))


_MARK = row(whole(), whole(), boolean, _identity, whole())
_CHECKS: Mapping[str, Check[Any]] = {"epochs_left": whole(-1), "seed": any_whole, "key": text}  # others: whole()


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a lane goes on: at a record's first header in the `at`-th shard of the order."""

    at: int
    offset: int = 0
    compressed: bool = False  # the offset then counts in what the shard decompresses to
    identity: Identity = field(default_factory=Identity)
    number: int = 0  # of records before it, where the archive names its records by number

    def bound_to(self, read: Mark) -> Mark:
        """The same place; if its shard is the one that was read, in the content that this one had."""
        return replace(self, identity=self.identity.completed_by(read.identity)) if read.at == self.at else self

    def to_json(self) -> list[Any]:
        i = self.identity
        stated = [i.version, i.etag, i.checksum, i.size, *([i.seen] if i.seen else [])]
        return [self.at, self.offset, self.compressed, stated, self.number]

    @classmethod
    def from_json(cls, data: Any) -> Mark:
        return cls(*_MARK(data))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream of records goes on; a few hundred bytes of text, whatever is shuffled.

    `marks` say where each lane was when the current window began, `lane` and `turn` whose turn it was and how
    much of it was left; `emitted` records of the window were handed out, and `skip` more are to be passed over.
    """

    epoch: int
    seed: int
    epochs_left: int  # behind this one; -1: for ever
    marks: tuple[Mark, ...]
    lane: int = 0
    turn: int = 0  # records already taken in this turn
    window: int = 0
    emitted: int = 0
    skip: int = 0
    number: int = 0  # records of this epoch that passed, those of other hosts too
    run: int = 0  # tells the iterators of one dataset apart
    count: int = 0  # records handed out in this run
    key: str = ""  # of the plan that it belongs to

    def to_text(self) -> str:
        fields = [getattr(self, name) for name in self.__slots__ if name != "marks"]
        return sealed_row([_FORMAT, [mark.to_json() for mark in self.marks], *fields])

    @classmethod
    def from_text(cls, saved: str) -> Position:
        try:
            version, marks, *values = parse_row(saved, where="the checkpoint's position", fail=CheckpointError)
            if version == _FORMAT:
                names = [name for name in cls.__slots__ if name != "marks"]
                fields = row(*(_CHECKS.get(name, whole()) for name in names))(values)
                return cls(marks=tuple(listed(Mark.from_json)(marks)), **dict(zip(names, fields, strict=True)))
        except CheckpointError:
            raise
        except (ValueError, TypeError, Mismatch):
            pass
        raise CheckpointError(
            "the checkpoint's position is not one of this version of ais_tar2tf; begin again, or use start_at="
        )


@dataclass(frozen=True, slots=True)
class Order:
    """The shards that one host reads in one epoch, by number; `cuts`, by place, for those that it reads in part."""

    shards: Sequence[int]
    cuts: Mapping[int, Cut] = field(default_factory=dict[int, Cut])


def permutation(count: int, *words: int) -> Sequence[int]:
    """A permutation of `range(count)` that depends on `words` alone.

    RandomState, since its streams never change between versions of numpy; Generator's may.
    """
    seeds = [part for word in words for part in (word & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF)]
    order: list[int] = np.random.RandomState(seeds).permutation(count).tolist()
    return order


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of `shards` shards. `host` of `hosts` reads its share of them, disjoint from all others'.

    `counts` are the records of each shard, where an index tells them. They decide nothing but how `even` shares.
    """

    shards: int
    shuffle: Shuffle | None = None
    host: int = 0
    hosts: int = 1
    even: str | None = None
    counts: Sequence[int] | None = None
    key: str = ""  # of the shards

    def __post_init__(self) -> None:
        if not 0 <= self.host < self.hosts:
            raise OptionError(f"shard=(i, n) needs 0 <= i < n, not ({self.host}, {self.hosts})")
        if self.even is not None:
            check_choice("even", self.even, EVEN)
        if self.counts is not None and len(self.counts) != self.shards:
            raise OptionError(f"there are counts of {len(self.counts):,} shards, not of {self.shards:,}")

    @property
    def _in_turns(self) -> bool:
        """Whether every host reads everything."""
        return self.even is not None and self.counts is None and self.hosts > 1

    @property
    def _in_ranges(self) -> bool:
        return self.even in ("pad", "drop") and self.counts is not None and self.hosts > 1

    @property
    def sharing(self) -> str:
        """How hosts share an epoch."""
        if self.by_records:
            return "single records"
        if self._in_turns:
            return "turns at all records"
        return "equal ranges of records" if self._in_ranges else "whole shards"

    @property
    def share(self) -> tuple[int, int]:
        """(k, m): of the records that are read, the k-th of every m is this host's."""
        if self.by_records:
            return 0, 1
        if self._in_turns:
            return self.host, self.hosts
        if self._in_ranges or self.hosts <= self.shards or not self.shards:
            return 0, 1
        return self.host // self.shards, len(range(self.host % self.shards, self.hosts, self.shards))

    @property
    def last_round(self) -> str | None:
        """What becomes of a last round of records in which not all hosts have a turn; None: they just have none."""
        return self.even if self._in_turns else None

    @property
    def in_windows(self) -> bool:
        """Whether windows of records are permuted; otherwise records come in the order of the plan."""
        return self.shuffle is not None and not self.shuffle.whole

    @property
    def by_records(self) -> bool:
        """Whether every record is read by itself."""
        return self.shuffle is not None and self.shuffle.whole

    def order(self, epoch: int, seed: int) -> Order:
        if self.by_records:
            return self._single_records(epoch, seed)
        whole = self._permuted(epoch, seed)
        if self._in_turns:
            return Order(whole)
        if self._in_ranges:
            begin, end = self._range
            return _cut_out(whole, self._counts(whole), begin, end)
        if self.hosts <= self.shards:
            return Order(whole[self.host :: self.hosts])
        return Order(whole[self.host % self.shards :][:1] if self.shards else ())

    def _single_records(self, epoch: int, seed: int) -> Order:
        assert self.shuffle is not None
        assert self.counts is not None
        shuffled = epoch if self.shuffle.reshuffle_each_epoch else 0
        count = self.length(seed) or 0
        records = SingleRecords(self.counts, self.host, self.hosts, count, seed, shuffled)
        return Order(records, SingleCuts(records))

    def most(self, epoch: int, seed: int) -> int | None:
        """How many records this host hands out in the epoch; None: all that it has."""
        if self.by_records:
            return None
        if self.even != "stop" or self.counts is None or self.hosts == 1:
            return None
        return min(self._each_host_has(self._permuted(epoch, seed)))

    def has_most(self, epoch: int, seed: int) -> bool:
        """Whether this host has no records in the epoch beside those that all hosts hand out."""
        order = self._permuted(epoch, seed)
        each = self._each_host_has(order)
        return each[self.host] == min(each)

    def length(self, seed: int) -> int | None:
        """Records of this host in any epoch; None where that is not known, or not the same in all of them."""
        if self.counts is None:
            return None
        total = sum(self.counts)
        if self.hosts == 1:
            return total
        if self.by_records:
            if self.even is None:
                return len(range(self.host, total, self.hosts))
            return -(-total // self.hosts) if self.even == "pad" else total // self.hosts
        if self._in_ranges:
            begin, end = self._range
            return end - begin if total else 0
        reshuffled = self.shuffle is not None and self.shuffle.reshuffle_each_epoch
        if reshuffled and len(set(self.counts)) > 1:
            return None
        each = self._each_host_has(self._permuted(0, seed))
        return min(each) if self.even == "stop" else each[self.host]

    def _permuted(self, epoch: int, seed: int) -> Sequence[int]:
        if self.shuffle is None:
            return range(self.shards)
        shuffled = epoch if self.shuffle.reshuffle_each_epoch else 0
        return permutation(self.shards, seed, shuffled)

    def _counts(self, order: Sequence[int]) -> np.ndarray:
        return np.asarray(self.counts, np.int64)[np.asarray(order, np.int64)]

    @property
    def _range(self) -> tuple[int, int]:
        """This host's records of the order, in which the first ones follow the last."""
        assert self.counts is not None
        total = sum(self.counts)
        each = -(-total // self.hosts) if self.even == "pad" else total // self.hosts
        return self.host * each, (self.host + 1) * each

    def _each_host_has(self, order: Sequence[int]) -> list[int]:
        counts = self._counts(order)
        if self.hosts <= self.shards:
            return [int(counts[host :: self.hosts].sum()) for host in range(self.hosts)]
        sharing = [len(range(at, self.hosts, self.shards)) for at in range(self.shards)]
        places = [divmod(host, self.shards) for host in range(self.hosts)] if self.shards else []
        return [len(range(turn, int(counts[at]), sharing[at])) for turn, at in places] or [0] * self.hosts

    @property
    def lanes(self) -> int:
        return self.shuffle.shards if self.shuffle is not None and self.in_windows else 1

    def window_order(self, count: int, position: Position) -> Sequence[int]:
        """How the records of the window that begins at `position` are permuted."""
        assert self.shuffle is not None
        epoch = position.epoch if self.shuffle.reshuffle_each_epoch else 0
        return permutation(count, position.seed, epoch, position.window, self._reader)

    @property
    def _reader(self) -> int:
        """Which stream of records this host reads: those who take turns at one see one order."""
        if self._in_turns:
            return 0
        return self.host if self.share == (0, 1) else self.host % self.shards

    @property
    def described(self) -> dict[str, Any]:
        """What the order depends on besides the shards and the seed, under names that an error can use."""
        how = self.shuffle
        windows = {} if how is None or how.whole else {
            "window": how.window,
            "window_bytes": how.window_bytes,
            "shards read at once": how.shards,
            "turn": how.in_turn,
        }  # fmt: skip
        return {
            "shuffle": "none" if how is None else "global" if how.whole else "windows",
            **{f"shuffle {name}": value for name, value in windows.items()},
            "reshuffle_each_epoch": how is not None and how.reshuffle_each_epoch,
            "host": f"{self.host} of {self.hosts}",
            "even": self.even,
            "shares by an index": self.counts is not None and self.even is not None and self.hosts > 1,
        }

    @property
    def fingerprint(self) -> str:
        """A position of another one is refused."""
        how = self.shuffle
        order = (
            None if how is None else [how.window, how.window_bytes, how.shards, how.in_turn, how.reshuffle_each_epoch]
        )
        if how is not None and how.whole:
            order = ["whole", how.reshuffle_each_epoch]
        shared = "by turns" if self._in_turns else self._in_ranges
        made = json.dumps([self.key, self.shards, order, self.host, self.hosts, self.even, shared])
        return hashlib.blake2b(made.encode(), digest_size=6).hexdigest()

    def begin(self, epoch: int, seed: int, epochs: int) -> Position:
        """The start of `epochs` epochs (-1: for ever) from `epoch` on."""
        marks = tuple(Mark(lane) for lane in range(self.lanes))
        return Position(epoch, seed, epochs - 1 if epochs > 0 else -1, marks, key=self.fingerprint)

    def next_epoch(self, position: Position) -> Position | None:
        """The start of the epoch behind that of `position`; None behind the last."""
        if position.epochs_left == 0:
            return None
        first = self.begin(position.epoch + 1, position.seed, -1)
        left = max(-1, position.epochs_left - 1)
        return replace(first, epochs_left=left, run=position.run, count=position.count)

    def check(self, position: Position) -> None:
        """Raises when `position` is from a dataset that was made in another way."""
        if position.key != self.fingerprint or len(position.marks) != self.lanes:
            raise CheckpointError(
                "the checkpoint is of another dataset: other shards, another shuffle, or another share of hosts; "
                "make the dataset as it was made when the checkpoint was saved, or use start_at="
            )


def behind_the_end(start_at: int, records: int) -> OptionError:
    """Make the error for a dataset that would begin behind the last of its records."""
    return OptionError(f"start_at={start_at:,} is behind the end: there are {records:,} records in this order")


def _cut_out(order: Sequence[int], counts: np.ndarray, begin: int, end: int) -> Order:
    """Records `begin` to `end` of an order that begins again behind its end."""
    shards: list[int] = []
    cuts: dict[int, Cut] = {}
    for at, first, behind in _pieces(np.cumsum(counts), begin, end):
        if first or behind < counts[at]:
            cuts[len(shards)] = Cut(first, behind)
        shards.append(order[at])
    return Order(shards, cuts)


def _pieces(ends: np.ndarray, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(place, first, behind) of every shard that has records of `begin` to `end`."""
    total = int(ends[-1]) if len(ends) else 0
    while begin < end and total:
        at = int(np.searchsorted(ends, begin % total, side="right"))
        before = int(ends[at - 1]) if at else 0
        first = begin % total - before
        behind = min(int(ends[at]) - before, first + end - begin)
        yield at, first, behind
        begin += behind - first
