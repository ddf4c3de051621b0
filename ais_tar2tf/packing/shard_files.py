"""Records → tar shards, one at a time in a temporary file, each put into a store and proved by reading it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import xxhash

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ChecksumMismatch, Tar2TFError
from ais_tar2tf.export.boundaries import Boundaries
from ais_tar2tf.export.tarfiles import END, record_members
from ais_tar2tf.reader import Shards
from ais_tar2tf.reading import all_records
from ais_tar2tf.records import Record
from ais_tar2tf.stores import Store

__all__ = ["ShardFile", "put_shard", "shard_files"]


class ShardFile:
    """One tar that is being made, in a file, and what must come back when it is read."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._file = path.open("wb")
        self._digest = xxhash.xxh3_128()
        self.records: int = 0
        self.size: int = 0

    def add(self, record: Record, members: tuple[bytes, ...]) -> None:
        self._file.writelines(members)
        self.size += sum(map(len, members))
        _sum_up(self._digest, record)
        self.records += 1

    def finish(self) -> bytes:
        """Write the end of the tar; return the digest of its records."""
        self._file.write(END)
        self.close()
        return self._digest.digest()

    def close(self) -> None:
        self._file.close()


def _sum_up(digest: xxhash.xxh3_128, record: Record) -> None:
    for name, value in record.items():
        if name != "__shard__":
            body: bytes = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            digest.update(f"{name}\0{len(body)}\0".encode("utf-8", "surrogateescape") + body)


def shard_files(
    records: Iterator[Record], boundaries: Boundaries, path: Path, added: Callable[[Record], None]
) -> Generator[ShardFile]:
    """Yield one shard after another, each in the file `path`, and tell `added` of each record."""
    shard = ShardFile(path)
    try:
        for record in records:
            members = record_members(record)
            size = sum(map(len, members))
            if not boundaries.fitting([size]):
                yield shard
                shard = ShardFile(path)
                boundaries.close()
                boundaries.fitting([size])
            shard.add(record, members)
            added(record)
        if shard.records:
            yield shard
    finally:
        shard.close()


def put_shard(store: Store, name: str, shard: ShardFile) -> None:
    """Put a shard into the store, and read it back; one that does not come back as it was does not stay.

    Raises:
        ChecksumMismatch: The records that came back are not those that were written.
    """
    expected = shard.finish()
    store.put(name, shard.path)
    try:
        _prove(store, name, shard, expected)
    except Tar2TFError:
        with contextlib.suppress(Tar2TFError):
            store.delete(name)
        raise


def _prove(store: Store, name: str, shard: ShardFile, expected: bytes) -> None:
    digest, records = xxhash.xxh3_128(), 0
    for record in all_records(Shards(store, [name]), Account()):
        _sum_up(digest, record)
        records += 1
    if records != shard.records or digest.digest() != expected:
        raise ChecksumMismatch(
            f"what was read back is not what was written ({records:,} of {shard.records:,} records)",
            url=store.url(name),
        )
