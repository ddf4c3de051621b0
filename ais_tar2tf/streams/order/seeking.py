"""Finds the position that is a given number of records after the start of an epoch. No I/O.

The position is computed from an index, which states how many records each shard has, and where each record begins.
This module must not read shards.
"""

from __future__ import annotations

from dataclasses import replace

from ais_tar2tf.streams.order.plan import MOST_EMPTY_EPOCHS, Plan, start_after_end
from ais_tar2tf.streams.order.positions import Mark, Position
from ais_tar2tf.streams.order.strategy import EntryOf, Order

__all__ = ["seek"]


def seek(plan: Plan, begin: Position, records: int, entry_of: EntryOf) -> Position:
    """Return the position of a host that has returned `records` records since `begin`, the start of an epoch.

    `entry_of` returns the index entry of a shard.

    Raises:
        OptionError: The epochs end before the host has returned `records` records, or `MOST_EMPTY_EPOCHS` epochs in
            succession have no records.
    """
    _, hosts = plan.share
    position, left, empty_epochs = begin, records, 0
    while True:
        order = plan.order(position.epoch, position.seed)
        of_epoch = _records_of_host(plan, position, order, entry_of)
        if left < of_epoch:
            numbered = replace(position, read_for_all=left * hosts)
            return plan.strategy.seek(numbered, order, left * hosts, entry_of)
        left -= of_epoch
        empty_epochs = 0 if of_epoch else empty_epochs + 1
        next_epoch = plan.next_epoch(position)
        if next_epoch is None or empty_epochs == MOST_EMPTY_EPOCHS:
            if left:
                raise start_after_end(records, records - left)
            return _end(plan, position, order)
        position = next_epoch


def _records_of_host(plan: Plan, position: Position, order: Order, entry_of: EntryOf) -> int:
    """Return the number of records that the host returns in the epoch of `position`."""
    turn, hosts = plan.share
    total = plan.strategy.step_records(order, entry_of)
    records = len(range(turn, total, hosts)) if plan.last_round is None else plan.equal_part(total)
    most = plan.record_limit(position.epoch, position.seed)
    return records if most is None else min(records, most)


def _end(plan: Plan, position: Position, order: Order) -> Position:
    """Return the position after the last record of the last epoch."""
    lanes = plan.lanes
    # The step of each lane after its last step in this order.
    steps = [len(range(lane, len(order.shards), lanes)) * lanes + lane for lane in range(lanes)]
    most = plan.record_limit(position.epoch, position.seed)
    _, hosts = plan.share
    return replace(position, marks=tuple(map(Mark, steps)), read_for_all=0 if most is None else most * hosts)
