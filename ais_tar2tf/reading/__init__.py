"""What a dataset is read from: where its records begin, streams of them from any position on, and how many there are.

A *reading* is the shards of one source under a plan, or several readings mixed. It opens nothing by itself.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import xxhash

from ais_tar2tf.account import Account
from ais_tar2tf.options import Read, Shuffle
from ais_tar2tf.plan import Mark, Plan, Position, behind_the_end
from ais_tar2tf.plan.seek import seek
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.reading.shares import open_stream
from ais_tar2tf.records import NAMES, Record, Records, Selection
from ais_tar2tf.shard_index import ShardIndex

__all__ = [
    "At",
    "PlainReading",
    "Reading",
    "Stream",
    "all_records",
    "behind_the_end",
    "passed",
    "size_of",
    "timed_records",
]


class At(Protocol):
    """A position: a frozen dataclass whose text a checkpoint keeps."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epoch(self) -> int: ...
    @property
    def epochs_left(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def count(self) -> int: ...

    def to_text(self) -> str: ...


class Stream(Protocol):
    """Records in chunks; between two chunks, `position` says where it is."""

    @property
    def position(self) -> At: ...
    @property
    def closed(self) -> bool: ...
    @property
    def chunk_bytes(self) -> int: ...

    def next_chunk(self, most: int | None = None, *, full: bool = False) -> Records: ...

    def discard(self, count: int) -> int:
        """Go on `count` records later; return how many there were."""
        ...

    def close(self) -> None: ...


class Reading(Protocol):
    @property
    def url(self) -> str:
        """For errors that no shard is to blame for."""
        ...

    @property
    def read(self) -> Read: ...

    @property
    def key(self) -> str:
        """A position of a reading with another key is refused."""
        ...

    def begin(self, epoch: int, seed: int, epochs: int) -> At: ...

    def parse(self, text: str) -> At: ...

    def open(self, at: Any, account: Account) -> Stream:
        """From a position of its own on."""
        ...

    def behind(self, at: Any, records: int, account: Account) -> At:
        """The position so many records later."""
        ...

    def length(self, seed: int) -> int | None:
        """Records in any epoch; None where that is not known, or not the same in all of them."""
        ...

    def shuffled(self, how: Shuffle) -> Reading: ...

    @property
    def described(self) -> dict[str, Any]:
        """What the order of the records depends on, in words and numbers that an error can name."""
        ...

    def without_fields(self) -> Reading:
        """The same, where only the number of records matters."""
        ...


@dataclass(frozen=True)
class PlainReading:
    """The shards of one source."""

    shards: Shards
    plan: Plan

    @property
    def url(self) -> str:
        return self.shards.store.url("")

    @property
    def read(self) -> Read:
        return self.shards.read

    @property
    def key(self) -> str:
        return self.plan.fingerprint

    def begin(self, epoch: int, seed: int, epochs: int) -> Position:
        return self.plan.begin(epoch, seed, epochs)

    def parse(self, text: str) -> Position:
        position = Position.from_text(text)
        self.plan.check(position)
        return position

    def open(self, at: Position, account: Account) -> Stream:
        return open_stream(self.shards, self.plan, at, account)

    def behind(self, at: Position, records: int, account: Account) -> At:
        """By the index, else by reading headers."""
        if self.plan.by_records:
            return self._behind_steps(at, records)
        known = [self.shards.known(number) for number in range(self.plan.shards)]
        if all(each is not None and each.placed for each in known):
            return seek(self.plan, at, records, self._known)
        return passed(self, at, records, account)

    def length(self, seed: int) -> int | None:
        return self.plan.length(seed)

    @property
    def described(self) -> dict[str, Any]:
        names = self.shards.names
        return {
            "number of shards": len(names),
            "names of shards (their hash)": _digest(self.shards),
            **self.plan.described,
        }

    def shuffled(self, how: Shuffle) -> PlainReading:
        return replace(self, plan=replace(self.plan, shuffle=how))

    def without_fields(self) -> PlainReading:
        return replace(self, shards=replace(self.shards, selection=Selection(())))

    def _behind_steps(self, at: Position, records: int) -> Position:
        """Every step of the order is a record."""
        each, asked = self.plan.length(at.seed) or 0, records
        while each and records >= each:
            following = self.plan.next_epoch(at)
            if following is None:
                if records > each:
                    raise behind_the_end(asked, asked - records + each)
                return replace(at, marks=(Mark(each),))
            at, records = following, records - each
        return replace(at, marks=(Mark(min(records, each)),))

    def _known(self, shard: int) -> ShardIndex:
        known = self.shards.known(shard)
        assert known is not None
        return known


def _digest(shards: Shards) -> str:
    """Hash the name of every shard and of its folder or bucket; where that stands may change."""
    digest = xxhash.xxh3_64()
    for name in shards.names:
        scheme, _, path = shards.store.url(name).partition("?")[0].rpartition("://")
        path = path.partition("/")[2] if scheme in ("http", "https") else path
        digest.update("\0".join(path.split("/")[-2:]).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def passed(reading: Reading, at: At, records: int, account: Account) -> At:
    """The position behind records that are read and dropped; where nothing is skipped, no field is looked at.

    Raises:
        OptionError: There are fewer records.
    """
    chosen = reading.without_fields() if account.raises else reading
    stream = chosen.open(at, account.twin())
    try:
        there = stream.discard(records)
        if there < records:
            raise behind_the_end(records, there)
        return stream.position
    finally:
        stream.close()


def size_of(record: Mapping[str, Any]) -> int:
    """Bytes of a record's fields."""
    return sum(len(value) for name, value in record.items() if name not in NAMES and hasattr(value, "__len__"))


def all_records(shards: Shards, account: Account) -> Generator[Record]:
    """Return every record of the shards once, in their order, counted in `account`."""
    plan = Plan(len(shards.names))
    return timed_records(RecordStream(shards, plan, plan.begin(0, 0, 1), account), account)


def timed_records(stream: Stream, account: Account) -> Generator[Record]:
    """Every record of a stream, counted, and the time that it took and was left alone; the stream is closed."""
    clock = time.perf_counter
    try:
        began = clock()
        while chunk := stream.next_chunk():
            account.add(reading=clock() - began)
            emitted, began = 0, clock()
            try:
                for emitted, record in enumerate(chunk, 1):  # noqa: B007  # counted also when the reader stops
                    yield record
            finally:
                account.emitted(emitted)
                account.add(idle=clock() - began)
            began = clock()
        account.add(reading=clock() - began)
    finally:
        stream.close()
