"""One input shard → the bytes of its records, in order, by split: what every worker does, in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ais_tar2tf.account import Account, OnError, Stats
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.raw import Row
from ais_tar2tf.export.serializers import Serializer
from ais_tar2tf.export.splits import Route, Single
from ais_tar2tf.export.work import Identified, Place
from ais_tar2tf.options import Read
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.records import Grouping, Record, Selection
from ais_tar2tf.stores import Store

__all__ = ["Event", "Job", "PortableJob", "ShardRead", "Units", "encode_chunk", "read_shard", "read_shards"]


@dataclass(frozen=True)
class Job:
    """What is read, and what becomes of it."""

    shards: Shards
    on_error: OnError
    route: Route
    serializer: Serializer


@dataclass(frozen=True)
class PortableJob:
    """A job that can go to another process: it says how the store is opened, and holds no connection."""

    reopen: Callable[[], Store]
    read: Read
    grouping: Grouping
    selection: Selection | None
    on_error: OnError
    route: Route
    serializer: Serializer

    def open(self) -> Job:
        shards = Shards(self.reopen(), (), self.read, self.grouping, self.selection)
        return Job(shards, self.on_error, self.route, self.serializer)


@dataclass(frozen=True)
class Units:
    """Records of one split of the input shard `at`: their numbers in it, their sizes, and their bytes."""

    at: int
    split: int
    numbers: Sequence[int]
    sizes: Sequence[int]
    data: Sequence[Row] | memoryview | Path  # each record's pieces; a segment, mapped or by its path
    identity: Identified


@dataclass(frozen=True)
class ShardRead:
    """The input shard `at` was read to its end."""

    at: int
    url: str
    identity: Identified
    stats: Stats
    observed: list[Observed] = field(default_factory=list[Observed])  # by split


Event = Units | ShardRead


class _Reading:
    """One input shard that is being read."""

    def __init__(self, job: Job, at: int, name: str) -> None:
        self._job = job
        self._at = at
        self._name = name
        self._account = Account(job.on_error)
        plan = Plan(1)
        shards = replace(job.shards, names=(name,))
        self._stream = RecordStream(shards, plan, plan.begin(0, 0, 1), self._account)

    def begin(self) -> _Reading:
        """Its first bytes come meanwhile."""
        self._stream.read_ahead()
        return self

    def events(self, done: Sequence[Place]) -> Iterator[Event]:
        job, account, stream = self._job, self._account, self._stream
        observed = [Observed() for _ in job.route.names]
        number = 0
        try:
            while chunk := [*stream.next_chunk(full=True)]:
                account.emitted(len(chunk))
                splits = encode_chunk(job, chunk, account, observed)
                yield from _units(splits, (self._at, number), done, identified(stream))
                number += len(chunk)
            identity = identified(stream)
        finally:
            stream.close()
        yield ShardRead(self._at, job.shards.store.url(self._name), identity, account.stats, observed)

    def close(self) -> None:
        self._stream.close()


def read_shard(job: Job, at: int, name: str, done: Sequence[Place]) -> Iterator[Event]:
    """The units of an input shard, and then what became of it; without those before their split's place in `done`.

    It is read from its start also when it goes on in the middle: so the account of it is whole.
    """
    return _Reading(job, at, name).events(done)


def read_shards(job: Job, names: Sequence[str], done: Sequence[Place]) -> Iterator[Event]:
    """The same of all shards from the first in `done` on; while one is read, the next one begins to come."""
    ahead: _Reading | None = None
    try:
        for at in range(min(place[0] for place in done), len(names)):
            current = ahead or _Reading(job, at, names[at])
            ahead = _Reading(job, at + 1, names[at + 1]).begin() if at + 1 < len(names) else None
            yield from current.events(done)
    finally:
        if ahead is not None:
            ahead.close()


@dataclass(frozen=True)
class SplitRows:
    """The records of a chunk that go to one split: their places in the chunk, their sizes and bytes."""

    places: Sequence[int]
    sizes: Sequence[int]
    rows: Sequence[Row]

    def behind(self, place: int) -> SplitRows:
        kept = [at for at, each in enumerate(self.places) if each >= place]
        return SplitRows(*([column[at] for at in kept] for column in (self.places, self.sizes, self.rows)))  # type: ignore[arg-type]  # a list of each


def _units(splits: Sequence[SplitRows], begin: Place, done: Sequence[Place], identity: Identified) -> Iterator[Units]:
    """The units of a chunk that begins at `begin`, without those before their split's place in `done`."""
    at, first = begin
    for split, rows in enumerate(splits):
        done_at, done_number = done[split]
        if at < done_at:
            continue
        kept = rows.behind(done_number - first) if begin < done[split] else rows
        if kept.rows:
            yield Units(at, split, [first + place for place in kept.places], kept.sizes, kept.rows, identity)


def encode_chunk(
    job: Job, chunk: Sequence[Record], account: Account, observed: Sequence[Observed]
) -> list[SplitRows]:
    """The rows of a chunk by split; what failed, or belongs to no split, is in the account."""
    made = job.serializer.encode_all(chunk, account)
    if isinstance(job.route, Single) and None not in made.rows:
        _observe(observed[0], chunk, made.examples)
        return [SplitRows(range(len(chunk)), made.sizes, made.rows)]  # type: ignore[arg-type]  # none is None
    splits: list[SplitRows] = []
    routed = job.route.of(chunk)
    for split in range(len(job.route.names)):
        kept = [at for at, to in enumerate(routed) if to == split and made.rows[at] is not None]
        rows = [row for at in kept if (row := made.rows[at]) is not None]
        splits.append(SplitRows(kept, [made.sizes[at] for at in kept], rows))
        _observe(observed[split], [chunk[at] for at in kept], made.examples and [made.examples[at] for at in kept])
    left_out = sum(to is None and row is not None for to, row in zip(routed, made.rows, strict=True))
    if left_out:
        account.add(records_emitted=-left_out)
        account.stats.skipped["NoSplit"] += left_out
    return splits


def _observe(observed: Observed, records: Sequence[Record], examples: Sequence[bytes | None] | None) -> None:
    if examples is None:
        observed.raw(records)
    else:
        observed.examples([example for example in examples if example is not None])


def identified(stream: RecordStream) -> Identified:
    identity = stream.identity
    return (identity.version, identity.etag, identity.checksum, identity.size)
