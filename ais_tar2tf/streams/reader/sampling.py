"""Reading without a stream: a part of one shard, or the places of all records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.options import MIN_READ_AHEAD
from ais_tar2tf.records import Record, RecordBatch
from ais_tar2tf.streams.index.entry import Cut
from ais_tar2tf.streams.order import Mark, Order
from ais_tar2tf.streams.reader.lane import Lane
from ais_tar2tf.streams.reader.sessions import ReadSession
from ais_tar2tf.streams.reader.shard_list import Shards

__all__ = ["read_part", "read_places"]


def read_part(shards: Shards, number: int, cut: Cut, account: Account) -> list[Record]:
    """Read the consecutive records `cut` of one shard; fewer if the shard ends before.

    If the index has their places, and the shard is not compressed, only their range is read. Otherwise the shard is
    read from its start.
    """
    entry = shards.entry(number)
    placed = entry is not None and entry.placed
    order = Order([number], lambda _: cut if placed else None)
    lane = Lane(ReadSession(shards), order, 1, Mark(0), account, MIN_READ_AHEAD)
    found: list[Record] = []
    to_skip, wanted = 0 if placed else cut.first, cut.stop - cut.first
    try:
        while len(found) < wanted:
            taken, _ = lane.take(to_skip or wanted - len(found), shards.read.limits.record_bytes)
            if not taken:
                break
            if to_skip:
                to_skip -= len(taken)
            else:
                found += taken
    finally:
        lane.close()
    return found


def read_places(
    shards: Shards, account: Account, found: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[str, Mark, RecordBatch]]:
    """Read every shard to its end and yield its name, a mark with its identity, and the places of its records.

    The records themselves are dropped. `found` is called with the number of records found since the previous call.
    """
    whole = replace(shards, selection=None)
    order = Order(range(len(shards.names)))
    lane = Lane(ReadSession(whole), order, 1, Mark(0), account)
    try:
        yield from lane.places(found)
    finally:
        lane.close()
