"""One input shard → the bytes of its records, in order, by split: what every worker does, in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ais_tar2tf.account import Account, OnError, Stats
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.serializers import Serializer
from ais_tar2tf.export.splits import Route, Single
from ais_tar2tf.export.work import Identified, Place
from ais_tar2tf.options import Read
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.records import Grouping, Record, Selection
from ais_tar2tf.stores import Store

__all__ = ["EncodedChunk", "Event", "Job", "PortableJob", "ShardRead", "Units", "encode_chunk", "read_shard"]


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
    data: bytes | Path
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


def read_shard(job: Job, at: int, name: str, done: Sequence[Place]) -> Iterator[Event]:
    """The units of an input shard, and then what became of it; without those before their split's place in `done`.

    It is read from its start also when it goes on in the middle: so the account of it is whole.
    """
    account = Account(job.on_error)
    plan, observed = Plan(1), [Observed() for _ in job.route.names]
    stream = RecordStream(replace(job.shards, names=(name,)), plan, plan.begin(0, 0, 1), account)
    number = 0
    try:
        while chunk := stream.next_chunk(full=True):
            account.emitted(len(chunk))
            made = encode_chunk(job, chunk, account, observed)
            yield from made.units((at, number), done, identified(stream))
            number += len(chunk)
        identity = identified(stream)
    finally:
        stream.close()
    yield ShardRead(at, job.shards.store.url(name), identity, account.stats, observed)


@dataclass(frozen=True)
class EncodedChunk:
    """Records' bytes by split, with the place of each record in the chunk."""

    places: list[Sequence[int]]
    parts: list[list[bytes]]

    def units(self, begin: Place, done: Sequence[Place], identity: Identified) -> Iterator[Units]:
        """The units of a chunk that begins at `begin`, without those before their split's place in `done`."""
        at, first = begin
        for split, (places, parts) in enumerate(zip(self.places, self.parts, strict=True)):
            if begin < done[split]:
                kept = [n for n, place in enumerate(places) if (at, first + place) >= done[split]]
                places, parts = [places[n] for n in kept], [parts[n] for n in kept]
            if parts:
                numbers = [first + place for place in places]
                yield Units(at, split, numbers, list(map(len, parts)), b"".join(parts), identity)


def encode_chunk(job: Job, chunk: Sequence[Record], account: Account, observed: Sequence[Observed]) -> EncodedChunk:
    units, examples = job.serializer.units(chunk, account)
    if isinstance(job.route, Single) and None not in units:
        _observe(observed[0], chunk, examples)
        return EncodedChunk([range(len(units))], [units])  # type: ignore[list-item]  # none of them is None
    places: list[Sequence[int]] = []
    parts: list[list[bytes]] = []
    routed = job.route.of(chunk)
    for split in range(len(job.route.names)):
        kept = [at for at, to in enumerate(routed) if to == split and units[at] is not None]
        places.append(kept)
        parts.append([unit for at in kept if (unit := units[at]) is not None])
        _observe(observed[split], [chunk[at] for at in kept], examples and [examples[at] for at in kept])
    left_out = sum(to is None and unit is not None for to, unit in zip(routed, units, strict=True))
    if left_out:
        account.add(records_emitted=-left_out)
        account.stats.skipped["NoSplit"] += left_out
    return EncodedChunk(places, parts)


def _observe(observed: Observed, records: Sequence[Record], examples: Sequence[bytes | None] | None) -> None:
    if examples is None:
        observed.raw(records)
    else:
        observed.examples([example for example in examples if example is not None])


def identified(stream: RecordStream) -> Identified:
    identity = stream.identity
    return (identity.version, identity.etag, identity.checksum, identity.size)
