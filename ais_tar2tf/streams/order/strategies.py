"""The registry of shuffle modes: the mode that each option selects. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ais_tar2tf.options import Shuffle
from ais_tar2tf.streams.order.global_shuffle import GlobalShuffle
from ais_tar2tf.streams.order.strategy import OrderStrategy
from ais_tar2tf.streams.order.template_order import TemplateOrder
from ais_tar2tf.streams.order.window_shuffle import WindowShuffle

__all__ = ["NAMED", "strategy_of"]

NAMED: Mapping[str, Shuffle] = {"global": Shuffle(whole=True)}
"""The modes that `shuffle=` accepts by name."""


@lru_cache(256)
def strategy_of(shuffle: Shuffle | None) -> OrderStrategy:
    """Return the strategy that an option selects."""
    if shuffle is None:
        return TemplateOrder()
    return GlobalShuffle(shuffle) if shuffle.whole else WindowShuffle(shuffle)
