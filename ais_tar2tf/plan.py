"""Which shards, in which order, for which host, from which position: pure and deterministic.

An *order* is the sequence of shard numbers that one host reads in one epoch. It is read by *lanes*: lane j of k
takes every k-th shard from the j-th on. Without a shuffle there is one lane.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ais_tar2tf.options import Shuffle
from ais_tar2tf.stores import Identity

__all__ = ["Mark", "Plan", "Position", "permutation"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a lane goes on: at a record's first header in the `at`-th shard of the order."""

    at: int
    offset: int = 0
    compressed: bool = False  # the offset then counts in what the shard decompresses to
    identity: Identity = field(default_factory=Identity)
    number: int = 0  # of records before it, where the archive names its records by number

    def to_json(self) -> list[Any]:
        i = self.identity
        return [self.at, self.offset, self.compressed, [i.version, i.etag, i.checksum, i.size], self.number]

    @classmethod
    def from_json(cls, data: list[Any]) -> Mark:
        at, offset, compressed, identity, number = data
        return cls(at, offset, compressed, Identity(*identity), number)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream of records goes on; a few hundred bytes of text, whatever is shuffled.

    `marks` say where each lane was when the current window began, `lane` and `turn` whose turn it was and how
    much of it was left; `emitted` records of the window were handed out.
    """

    epoch: int
    seed: int
    epochs_left: int  # behind this one; -1: for ever
    marks: tuple[Mark, ...]
    lane: int = 0
    turn: int = 0  # records already taken in this turn
    window: int = 0
    emitted: int = 0
    run: int = 0  # tells the iterators of one dataset apart
    count: int = 0  # records handed out in this run

    def to_text(self) -> str:
        fields = [getattr(self, name) for name in self.__slots__ if name != "marks"]
        return json.dumps([[mark.to_json() for mark in self.marks], *fields], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Position:
        marks, *fields = json.loads(text)
        names = [name for name in cls.__slots__ if name != "marks"]
        return cls(marks=tuple(map(Mark.from_json, marks)), **dict(zip(names, fields, strict=True)))


def permutation(count: int, *words: int) -> Sequence[int]:
    """A permutation of `range(count)` that depends on `words` alone.

    RandomState, since its streams never change between versions of numpy; Generator's may.
    """
    seeds = [part for word in words for part in (word & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF)]
    order: list[int] = np.random.RandomState(seeds).permutation(count).tolist()
    return order


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of `shards` shards. `host` of `hosts` reads its share of them, disjoint from all others'."""

    shards: int
    shuffle: Shuffle | None = None
    host: int = 0
    hosts: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.host < self.hosts:
            raise ValueError(f"shard=(i, n) needs 0 <= i < n, not ({self.host}, {self.hosts})")

    def order(self, epoch: int, seed: int) -> Sequence[int]:
        if self.shuffle is None:
            return range(self.host, self.shards, self.hosts)
        shuffled = epoch if self.shuffle.reshuffle_each_epoch else 0
        return permutation(self.shards, seed, shuffled)[self.host :: self.hosts]

    @property
    def lanes(self) -> int:
        return 1 if self.shuffle is None else self.shuffle.shards

    def window_order(self, count: int, position: Position) -> Sequence[int]:
        """How the records of the window that begins at `position` are permuted."""
        assert self.shuffle is not None
        epoch = position.epoch if self.shuffle.reshuffle_each_epoch else 0
        return permutation(count, position.seed, epoch, position.window, self.host)

    def begin(self, epoch: int, seed: int, epochs: int) -> Position:
        """The start of `epochs` epochs (-1: for ever) from `epoch` on."""
        marks = tuple(Mark(lane) for lane in range(self.lanes))
        return Position(epoch, seed, epochs - 1 if epochs > 0 else -1, marks)

    def next_epoch(self, position: Position) -> Position | None:
        """The start of the epoch behind that of `position`; None behind the last."""
        if position.epochs_left == 0:
            return None
        first = self.begin(position.epoch + 1, position.seed, -1)
        left = max(-1, position.epochs_left - 1)
        return replace(first, epochs_left=left, run=position.run, count=position.count)
