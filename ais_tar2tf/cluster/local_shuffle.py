"""The shuffle without dSort: this process decides the order, fetches the records, and writes the new shards.

A record is requested as a byte range of its shard (AIStore's GetBatch). The range includes the tar headers, so the
concatenated ranges are a tar. The ranges come from an index, or else from reading the shards.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ExportError, SchemaError, StoreError, UnsupportedArchive
from ais_tar2tf.options import Read
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.files import default_place, find_index
from ais_tar2tf.streams.reader import Shards, read_places

__all__ = ["RecordRange", "shuffle_locally"]

_END = bytes(1024)
_BLOCK = 512
_ORDERS = ("random", "none")
_BATCH_RECORDS = 4_096  # of one batch request, whose body then has some 400 KB


class RecordRange(NamedTuple):
    """The place of a record's bytes; `shard` is the shard's number."""

    shard: int
    start: int
    length: int


def shuffle_locally(
    source: AisStore,
    names: Sequence[str],
    store: AisStore,
    out_names: Iterator[str],
    size: int,
    make_room: Callable[[], None],
    *,
    order: str | tuple[str, str],
    seed: int,
    read: Read,
) -> list[str]:
    """Write the records of shards into new shards, and return the URLs of the new shards.

    One new shard at a time is held in memory.

    Args:
        source: The store of the shards to read.
        names: The names of these shards.
        store: The store of the new shards.
        out_names: The names of the new shards.
        size: The largest size of a new shard in bytes.
        make_room: Deletes old shards. It is called before the first new shard is written, after all checks.
        order: "random", or "none" for the order of the shards that are read.
        seed: The seed of the random order.
        read: The options of reading.

    Raises:
        ExportError: The records need more new shards than there are names.
        SchemaError: Only dSort can sort the records in this order.
        UnsupportedArchive: A shard is not an uncompressed tar.
    """
    if order not in _ORDERS:
        raise SchemaError(f"without dSort, order is one of {', '.join(_ORDERS)}, not {order!r}")
    indexes = enumerate(_shard_indexes(source, names, read))
    ranges = [record for number, index in indexes for record in _record_ranges(number, index)]
    if order == "random":
        random.Random(seed).shuffle(ranges)  # noqa: S311  # not a secret
    shards = list(_split_by_size(ranges, size))
    new_names = list(islice(out_names, len(shards)))
    if len(new_names) < len(shards):
        raise ExportError(
            f"{len(new_names):,} names are too few for shards of {size:,} bytes; pass a template with more"
        )
    make_room()
    for name, records in zip(new_names, shards, strict=True):
        store.put(name, b"".join(_fetch(source, names, records)) + _END)
    return [store.url(name) for name in new_names]


def _shard_indexes(source: AisStore, names: Sequence[str], read: Read) -> Iterator[ShardIndex]:
    """Yield the index of each shard, from an index file that is up to date, or else by reading the shard."""
    shards = Shards(source, names, read)
    index = find_index(shards, default_place(shards)).index
    entries = [None if index is None else index.get(name) for name in names]
    if all(each is not None and each.placed for each in entries):
        yield from (each for each in entries if each is not None)
        return
    for name, mark, seen in read_places(shards, Account()):
        if mark.compressed or any(offset % _BLOCK for offset in seen.offsets):
            raise UnsupportedArchive(
                "without dSort only uncompressed tars are shuffled, in which a record is a range of bytes",
                shard=source.url(name),
                offset=0,
            )
        yield ShardIndex.from_places(name, mark.identity, seen.offsets, seen.extents, seen.sizes, compressed=False)


def _record_ranges(shard: int, index: ShardIndex) -> Iterator[RecordRange]:
    if index.compressed or not index.is_tar:
        raise UnsupportedArchive("without dSort only uncompressed tars are shuffled", shard=index.name, offset=0)
    start = index.first
    for extent in index.all_extents():
        yield RecordRange(shard, start, extent)
        start += extent


def _split_by_size(ranges: Sequence[RecordRange], size: int) -> Iterator[list[RecordRange]]:
    """Yield the records of each new shard: as many as fit into `size` bytes, but at least one."""
    records: list[RecordRange] = []
    total = len(_END)
    for record in ranges:
        if records and total + record.length > size:
            yield records
            records, total = [], len(_END)
        records.append(record)
        total += record.length
    if records:
        yield records


def _fetch(source: AisStore, names: Sequence[str], ranges: Sequence[RecordRange]) -> Iterator[bytes]:
    for begin in range(0, len(ranges), _BATCH_RECORDS):
        batch = ranges[begin : begin + _BATCH_RECORDS]
        answer = source.batch([(names[record.shard], record.start, record.length) for record in batch])
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:") as archive:
            for record, member in zip(batch, archive, strict=True):
                body = archive.extractfile(member)
                data = body.read() if body is not None else b""
                if len(data) != record.length or not member.name.endswith(names[record.shard]):
                    raise StoreError(
                        f"the batch contains {member.name!r} with {len(data):,} bytes instead of {record.length:,}: "
                        "the shard was deleted, or is shorter now",
                        url=source.url(names[record.shard]),
                    )
                yield data
