"""Reads input shards, and yields their records encoded for the record files of an export.

An *event* is a batch of encoded records (`EncodedBatch`), or the end of a shard (`ShardRead`). The main process or
worker processes call this module. It must not write record files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ais_tar2tf.base.monitoring.stats import Account, OnError, Stats
from ais_tar2tf.options import Read
from ais_tar2tf.recordfiles.export.journal import NO_IDENTITY, IdentityTuple, ResumePoint
from ais_tar2tf.recordfiles.export.routing import FunctionRoute, Route, SingleRoute
from ais_tar2tf.recordfiles.export.serializers import Serializer
from ais_tar2tf.recordfiles.export.split_statistics import SplitStatistics
from ais_tar2tf.recordfiles.formats.base import RecordFormat
from ais_tar2tf.recordfiles.formats.rows import Row
from ais_tar2tf.records import Grouping, Records, Selection
from ais_tar2tf.stores import LocalFiles, Store
from ais_tar2tf.streams.order import Plan
from ais_tar2tf.streams.reader import ReadSession, RecordStream, Shards

__all__ = ["EncodedBatch", "Event", "ExportJob", "PortableJob", "ShardRead", "read_shard", "read_shards"]

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class ExportJob:
    """The shards that an export reads, how it encodes their records, and to which split each record goes."""

    shards: Shards
    on_error: OnError
    route: Route
    serializer: Serializer


@dataclass(frozen=True)
class PortableJob:
    """An `ExportJob` in a form that can be pickled for another process, where `reopen` opens the store again."""

    reopen: Callable[[], Store]
    read: Read
    grouping: Grouping
    selection: Selection | None
    on_error: OnError
    route: Route
    serializer: Serializer

    def open(self) -> ExportJob:
        """Open the store and return the job."""
        shards = Shards(self.reopen(), (), self.read, self.grouping, self.selection)
        return ExportJob(shards, self.on_error, self.route, self.serializer)


@dataclass(frozen=True)
class EncodedBatch:
    """Encoded records of one input shard that go to the same split, in the order of the shard."""

    at: int  # the number of the input shard
    split: int  # the number of the split
    numbers: Sequence[int]  # the number of each record in its shard
    sizes: Sequence[int]  # the encoded bytes of each record
    data: Sequence[Row] | memoryview | Path  # the rows; or a worker's file of rows, as a memory map or as a path
    identity: IdentityTuple = NO_IDENTITY

    @classmethod
    def from_payloads(
        cls, payloads: Sequence[bytes], record_format: RecordFormat, begin: int, split: int = 0
    ) -> EncodedBatch:
        """Return a batch of serialized Examples, which come from no shard. The first gets the number `begin`."""
        rows, sizes = record_format.framed([(payload,) for payload in payloads], list(map(len, payloads)))
        return cls(0, split, range(begin, begin + len(rows)), sizes, rows)


@dataclass(frozen=True)
class ShardRead:
    """The event that follows the last batch of an input shard: the shard was read to its end."""

    at: int  # the number of the input shard
    url: str
    identity: IdentityTuple
    stats: Stats
    statistics: list[SplitStatistics] = field(default_factory=list[SplitStatistics])  # one for each split


Event = EncodedBatch | ShardRead


class _InputShard:
    """An open input shard. Its records are read and encoded."""

    def __init__(self, job: ExportJob, at: int, name: str) -> None:
        self._job = job
        self._at = at
        self._name = name
        self._account = Account(job.on_error)
        plan = Plan(1)
        # Fields may stay in blocks if they are only written. Those of a local file are read one by one anyway.
        is_read = isinstance(job.route, FunctionRoute) or not job.serializer.writes_fields
        in_blocks = not is_read and not isinstance(job.shards.store, LocalFiles)
        shards = replace(job.shards, names=(name,), in_blocks=in_blocks)
        self._stream = RecordStream(ReadSession(shards), plan, plan.begin(0, 0, 1), self._account)

    def begin(self) -> _InputShard:
        """Start to download the first bytes of the shard; return this object."""
        self._stream.read_ahead()
        return self

    def events(self, resume_at: Sequence[ResumePoint]) -> Iterator[Event]:
        """Yield batches of encoded records, from the resume point of each split on; then yield a `ShardRead`."""
        statistics = [SplitStatistics() for _ in self._job.route.names]
        number = 0
        try:
            while chunk := self._stream.next_chunk(full=True):
                self._account.add_emitted(len(chunk))
                yield from self._encoded(chunk, number, statistics, resume_at)
                number += len(chunk)
            identity = self._identity
        finally:
            self._stream.close()
        url = self._job.shards.store.url(self._name)
        yield ShardRead(self._at, url, identity, self._account.stats, statistics)

    def _encoded(
        self,
        chunk: Records,
        first: int,
        statistics: Sequence[SplitStatistics],
        resume_at: Sequence[ResumePoint],
    ) -> Iterator[EncodedBatch]:
        """Yield a batch for each split that gets records of `chunk`, whose first record has the number `first`."""
        encoded = self._job.serializer.encode_all(chunk, self._account)
        routed = self._job.route.split_numbers(chunk)
        is_whole = isinstance(self._job.route, SingleRoute) and None not in encoded.rows
        for split, resume_point in enumerate(resume_at):
            kept: Sequence[int] = range(len(chunk))
            if not is_whole:
                kept = [at for at, to in enumerate(routed) if to == split and encoded.rows[at] is not None]
            if encoded.examples is None:
                statistics[split].add_raw(chunk, kept)
            else:
                # No chosen example is None: an example is None only if its row is None.
                statistics[split].add_examples(_chosen(encoded.examples, kept))  # type: ignore[arg-type]
            if (self._at, first) < resume_point:
                kept = [at for at in kept if (self._at, first + at) >= resume_point]
            if kept:
                numbers = _chosen(range(first, first + len(chunk)), kept)
                rows: Any = _chosen(encoded.rows, kept)
                yield EncodedBatch(self._at, split, numbers, _chosen(encoded.sizes, kept), rows, self._identity)
        left_out = sum(to is None and row is not None for to, row in zip(routed, encoded.rows, strict=True))
        if left_out:
            self._account.add(records_emitted=-left_out)
            self._account.stats.skipped["NoSplit"] += left_out

    @property
    def _identity(self) -> IdentityTuple:
        identity = self._stream.identity
        return (identity.version, identity.etag, identity.checksum, identity.size)

    def close(self) -> None:
        self._stream.close()


def _chosen(column: Sequence[_Item], kept: Sequence[int]) -> Sequence[_Item]:
    """Return the items with the indices `kept`. If `kept` has all indices, return `column` without a copy."""
    return column if len(kept) == len(column) else [column[at] for at in kept]


def read_shard(job: ExportJob, at: int, name: str, resume_at: Sequence[ResumePoint]) -> Iterator[Event]:
    """Yield the encoded records of an input shard, and then a `ShardRead`.

    The shard is always read from its start, so that the statistics cover the whole shard. Records before the resume
    point of their split are not yielded.

    Args:
        job: The export.
        at: The number of the input shard.
        name: The name of the input shard.
        resume_at: The resume point of each split.
    """
    return _InputShard(job, at, name).events(resume_at)


def read_shards(job: ExportJob, names: Sequence[str], resume_at: Sequence[ResumePoint]) -> Iterator[Event]:
    """Yield the events of all shards from the earliest resume point on. The next shard downloads meanwhile."""
    next_shard: _InputShard | None = None
    try:
        for at in range(min(point[0] for point in resume_at), len(names)):
            current = next_shard or _InputShard(job, at, names[at])
            next_shard = _InputShard(job, at + 1, names[at + 1]).begin() if at + 1 < len(names) else None
            yield from current.events(resume_at)
    finally:
        if next_shard is not None:
            next_shard.close()
