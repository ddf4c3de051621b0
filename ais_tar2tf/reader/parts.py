"""Beside the streams: some records of one shard, and where all of them are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.options import LEAST_READ_AHEAD
from ais_tar2tf.plan import Mark, Order
from ais_tar2tf.reader.lane import Lane
from ais_tar2tf.reader.shards import Shards
from ais_tar2tf.records import Record, RecordBatch
from ais_tar2tf.shard_index import Cut

__all__ = ["read_part", "read_places"]


def read_part(shards: Shards, number: int, cut: Cut, account: Account) -> list[Record]:
    """Some records of one shard: by a range, where the index says which; else from its start on."""
    known = shards.known(number)
    placed = known is not None and known.placed
    order = Order([number], {0: cut} if placed else {})
    lane = Lane(shards, order, 1, Mark(0), account, LEAST_READ_AHEAD)
    found: list[Record] = []
    to_pass, wanted = 0 if placed else cut.first, cut.behind - cut.first
    try:
        while len(found) < wanted:
            taken, _ = lane.take(to_pass or wanted - len(found), shards.read.limits.record_bytes)
            if not taken:
                break
            if to_pass:
                to_pass -= len(taken)
            else:
                found += taken
    finally:
        lane.close()
    return found


def read_places(
    shards: Shards, account: Account, found: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[str, Mark, RecordBatch]]:
    """Of every shard, read to its end: which content it had, and where its records are; the records are not kept.

    `found` is called with how many more there are, as they come.
    """
    whole = replace(shards, selection=None)
    order = Order(range(len(shards.names)))
    lane = Lane(whole, order, 1, Mark(0), account)
    try:
        yield from lane.places(found)
    finally:
        lane.close()
