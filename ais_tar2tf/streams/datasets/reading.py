"""Readings: descriptions of the records that a dataset reads, from which streams can be opened at any position.

A *reading* is either the shards of one source with a plan of their order, or a mixture of several readings. It is a
frozen value: it opens nothing by itself, and several streams may be open at once.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import xxhash

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.options import MIB, Limits, Read, Shuffle
from ais_tar2tf.records import KEY_AND_SHARD, Record, Selection
from ais_tar2tf.stores import LocalFiles
from ais_tar2tf.streams.datasets.shares import open_stream
from ais_tar2tf.streams.order import Plan, Position, StreamPosition, seek, start_after_end
from ais_tar2tf.streams.reader import ReadSession, RecordStream, Shards, Stream

__all__ = ["Reading", "SourceReading", "all_records", "position_after", "size_of", "timed_records"]

_BLOCK_CHUNK = 4 * MIB  # bytes of a chunk whose fields stay in blocks, so that Python makes no copies of them
_FILE_CHUNK = 8 * MIB  # bytes of a chunk; while its fields are in a file, the chunk takes no memory


class Reading(Protocol):
    """The records of one source or of a mixture, in an order that a seed and an epoch determine."""

    @property
    def url(self) -> str:
        """The URL that errors name if no single shard is to blame."""
        ...

    @property
    def read(self) -> Read:
        """The options of reading, among them the limits."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of the order apart from seed and epoch. Positions with another fingerprint are refused."""
        ...

    @property
    def described(self) -> dict[str, Any]:
        """What the order depends on besides seed and epoch, in words and numbers that an error can name."""
        ...

    def begin(self, epoch: int, seed: int, epochs: int) -> StreamPosition:
        """Return the start of `epochs` epochs (-1: without end), of which `epoch` is the first."""
        ...

    def parse(self, text: str) -> StreamPosition:
        """Parse the text of a position, and raise CheckpointError if it belongs to another reading."""
        ...

    def open(self, at: Any, account: Account) -> Stream:
        """Open a stream at one of this reading's own positions."""
        ...

    def seek(self, at: Any, records: int, account: Account) -> StreamPosition:
        """Return the position `records` records after `at`."""
        ...

    def length(self, seed: int) -> int | None:
        """Return the number of records in an epoch; None if it is unknown, or differs between epochs."""
        ...

    def shuffled(self, how: Shuffle | None) -> Reading:
        """Return the same records in another order."""
        ...

    @property
    def from_files(self) -> bool:
        """Whether the shards are local tars, in which large members are found without reading their bodies."""
        ...

    def without_fields(self) -> Reading:
        """Return the same records without fields, for a caller that only counts them."""
        ...

    def in_blocks(self) -> Reading | None:
        """Return the same records, whose fields stay in the blocks in which they arrived, or in their file.

        None if records are taken one by one, as for a shuffle: each field is then better an object of its own.
        """
        ...


@dataclass(frozen=True)
class SourceReading:
    """The shards of one source, and the plan by which one host reads them."""

    session: ReadSession
    plan: Plan

    @property
    def shards(self) -> Shards:
        """The shards that are read."""
        return self.session.shards

    @property
    def url(self) -> str:
        return self.shards.store.url("")

    @property
    def read(self) -> Read:
        return self.shards.read

    @property
    def fingerprint(self) -> str:
        return self.plan.fingerprint

    @property
    def described(self) -> dict[str, Any]:
        return {
            "number of shards": len(self.shards.names),
            "names of shards (their hash)": _digest(self.shards),
            **self.plan.described,
        }

    def begin(self, epoch: int, seed: int, epochs: int) -> Position:
        return self.plan.begin(epoch, seed, epochs)

    def parse(self, text: str) -> Position:
        position = Position.from_text(text)
        self.plan.check(position)
        return position

    def open(self, at: Position, account: Account) -> Stream:
        return open_stream(self.session, self.plan, at, account)

    def seek(self, at: Position, records: int, account: Account) -> StreamPosition:
        """Compute the position from an index of all shards, or read up to it where there is none."""
        entries = [self.shards.entry(number) for number in range(self.plan.shards)]
        placed = [entry for entry in entries if entry is not None and entry.placed]
        if len(placed) < len(entries):
            return position_after(self, at, records, account)
        return seek(self.plan, at, records, placed.__getitem__)

    def length(self, seed: int) -> int | None:
        return self.plan.length(seed)

    def shuffled(self, how: Shuffle | None) -> SourceReading:
        return replace(self, plan=replace(self.plan, shuffle=how))

    def without_fields(self) -> SourceReading:
        return self._over(replace(self.shards, selection=Selection(())))

    @property
    def from_files(self) -> bool:
        names = self.shards.names
        return isinstance(self.shards.store, LocalFiles) and bool(names) and names[0].endswith(".tar")

    def in_blocks(self) -> SourceReading | None:
        one_by_one = self.plan.shuffle is not None or self.plan.share != (0, 1)
        if one_by_one:
            return None
        session, read = self.session.over(replace(self.shards, in_blocks=True)), self.read
        if read.limits.chunk_bytes == Limits.chunk_bytes:  # the user has not set it
            chunk = _FILE_CHUNK if self.from_files else _BLOCK_CHUNK
            session = session.among(replace(read, limits=replace(read.limits, chunk_bytes=chunk)), 1)
        return replace(self, session=session)

    def _over(self, shards: Shards) -> SourceReading:
        return replace(self, session=self.session.over(shards))


def _digest(shards: Shards) -> str:
    """Hash the name of every shard with its folder or bucket, but not the place of that folder, which may change."""
    digest = xxhash.xxh3_64()
    for name in shards.names:
        scheme, _, path = shards.store.url(name).partition("?")[0].rpartition("://")
        path = path.partition("/")[2] if scheme in ("http", "https") else path
        digest.update("\0".join(path.split("/")[-2:]).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def position_after(reading: Reading, at: StreamPosition, records: int, account: Account) -> StreamPosition:
    """Read and drop `records` records, and return the position after them.

    Fields are not read if every error is raised. Otherwise they are needed, because a missing field skips a record.

    Raises:
        OptionError: There are fewer records.
    """
    chosen = reading.without_fields() if account.raises else reading
    stream = chosen.open(at, account.with_new_stats())
    try:
        dropped = stream.discard(records)
        if dropped < records:
            raise start_after_end(records, dropped)
        return stream.position
    finally:
        stream.close()


def size_of(record: Mapping[str, Any]) -> int:
    """Return the bytes of a record's fields."""
    return sum(
        len(value) for name, value in record.items() if name not in KEY_AND_SHARD and hasattr(value, "__len__")
    )


def all_records(session: ReadSession, account: Account) -> Generator[Record]:
    """Return every record of the shards once, in their order, counted in `account`."""
    plan = Plan(len(session.shards.names))
    return timed_records(RecordStream(session, plan, plan.begin(0, 0, 1), account), account)


def timed_records(stream: Stream, account: Account) -> Generator[Record]:
    """Yield every record of a stream and close the stream; count the records, and the seconds of reading and idling.

    Records are also counted when the caller stops early.
    """
    clock = time.perf_counter
    try:
        began = clock()
        while chunk := stream.next_chunk():
            account.add(reading=clock() - began)
            emitted, began = 0, clock()
            try:
                for emitted, record in enumerate(chunk, 1):  # noqa: B007  # `finally` reads it
                    yield record
            finally:
                account.add_emitted(emitted)
                account.add(idle=clock() - began)
            began = clock()
        account.add(reading=clock() - began)
    finally:
        stream.close()
