"""The order of records: plans, positions, shuffle modes and shares of hosts. No I/O.

A plan combines a shuffle mode (`strategy.py`; one module each: `template_order`, `window_shuffle`, `global_shuffle`)
with the share of a host. `seek` finds a position without reading.
"""

from __future__ import annotations

from ais_tar2tf.streams.order.permutations import LargePermutation, permutation
from ais_tar2tf.streams.order.plan import MOST_EMPTY_EPOCHS, Plan, start_after_end
from ais_tar2tf.streams.order.positions import Mark, Position, StreamPosition
from ais_tar2tf.streams.order.seeking import seek
from ais_tar2tf.streams.order.strategies import NAMED, strategy_of
from ais_tar2tf.streams.order.strategy import EntryOf, LaneReader, Order, OrderStrategy, RecordLane

__all__ = [
    "MOST_EMPTY_EPOCHS",
    "NAMED",
    "EntryOf",
    "LaneReader",
    "LargePermutation",
    "Mark",
    "Order",
    "OrderStrategy",
    "Plan",
    "Position",
    "RecordLane",
    "StreamPosition",
    "permutation",
    "seek",
    "start_after_end",
    "strategy_of",
]
