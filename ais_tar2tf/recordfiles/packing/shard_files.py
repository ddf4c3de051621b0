"""Write records as tar shards into a temporary file, upload each shard, and verify it by reading it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import xxhash

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ChecksumMismatch, Tar2TFError
from ais_tar2tf.recordfiles.export.boundaries import FillLevel
from ais_tar2tf.recordfiles.formats.tar_members import END, record_members
from ais_tar2tf.records import Record
from ais_tar2tf.stores import Store
from ais_tar2tf.streams.datasets import all_records
from ais_tar2tf.streams.reader import ReadSession, Shards

__all__ = ["ShardFile", "upload_shard", "write_shards"]


class ShardFile:
    """A tar shard that is being written to a local file, and the digest of its records."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._file = path.open("wb")
        self._digest = xxhash.xxh3_128()
        self.records: int = 0
        self.size: int = 0

    def add(self, record: Record, members: tuple[bytes, ...]) -> None:
        """Append a record, whose tar members are `members`."""
        self._file.writelines(members)
        self.size += sum(map(len, members))
        _update_digest(self._digest, record)
        self.records += 1

    def finish(self) -> bytes:
        """Write the end mark of the tar, close the file, and return the digest of its records."""
        self._file.write(END)
        self.close()
        return self._digest.digest()

    def close(self) -> None:
        self._file.close()


def _update_digest(digest: xxhash.xxh3_128, record: Record) -> None:
    for name, value in record.items():
        if name != "__shard__":
            body: bytes = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            digest.update(f"{name}\0{len(body)}\0".encode("utf-8", "surrogateescape") + body)


def write_shards(
    records: Iterator[Record], level: FillLevel, path: Path, on_record: Callable[[Record], None]
) -> Generator[ShardFile]:
    """Write records into shards, and yield one shard after another. Each shard replaces the last in the file `path`.

    `on_record` is called with each record that was written.
    """
    shard = ShardFile(path)
    try:
        for record in records:
            members = record_members(record)
            size = sum(map(len, members))
            if not level.fill([size]):
                yield shard
                shard = ShardFile(path)
                level.begin_next_file()
                level.fill([size])
            shard.add(record, members)
            on_record(record)
        if shard.records:
            yield shard
    finally:
        shard.close()


def upload_shard(store: Store, name: str, shard: ShardFile) -> None:
    """Upload a shard and read it back. A shard that cannot be read back is deleted.

    Raises:
        ChecksumMismatch: The records that were read are not those that were written.
    """
    expected = shard.finish()
    store.put(name, shard.path)
    try:
        _verify(store, name, shard, expected)
    except Tar2TFError:
        with contextlib.suppress(Tar2TFError):
            store.delete(name)
        raise


def _verify(store: Store, name: str, shard: ShardFile, expected: bytes) -> None:
    digest, records = xxhash.xxh3_128(), 0
    for record in all_records(ReadSession(Shards(store, [name])), Account()):
        _update_digest(digest, record)
        records += 1
    if records != shard.records or digest.digest() != expected:
        raise ChecksumMismatch(
            f"the shard that was read back differs from the one that was written ({records:,} of {shard.records:,} "
            "records)",
            url=store.url(name),
        )
