"""The orders of tf.data's `shuffle` and `interleave`, in Python: a plain loop has the order of the dataset. No I/O.

TensorFlow draws from Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11), keyed by
the graph's seed, which is a constant unless `tf.random.set_seed` was called, with the seed of the operation in its
counter. Each epoch of a shuffle draws its seeds from a generator that the dataset keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

__all__ = ["Draws", "ShuffleSeeds", "interleaved", "shuffled"]

_Item = TypeVar("_Item")

_GRAPH_SEED = 87654321  # TensorFlow's, where nobody set one
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_BLOCKS = 1024  # of four numbers each, made at once
_SEEDS = (1 << 31) - 1  # TensorFlow takes seeds modulo this


class Draws:
    """32-bit numbers as a TensorFlow operation with two seeds draws them, one after the other."""

    def __init__(self, seed: int, seed2: int) -> None:
        self._key = (seed & _MASK, (seed >> 32) & _MASK)
        self._high = (seed2 & _MASK, (seed2 >> 32) & _MASK)
        self._block = 0
        self._numbers: list[int] = []

    def next(self) -> int:
        """Return the next number."""
        if not self._numbers:
            self._numbers = self._made()[::-1]
        return self._numbers.pop()

    def _made(self) -> list[int]:
        low = np.arange(self._block, self._block + _BLOCKS, dtype=np.uint64)
        self._block += _BLOCKS
        mask = np.uint64(_MASK)
        words = [low & mask, low >> np.uint64(32), *(np.full(_BLOCKS, each, np.uint64) for each in self._high)]
        key = list(self._key)
        for _ in range(_ROUNDS):
            first, second = (words[at] * np.uint64(by) for at, by in zip((0, 2), _MULTIPLIERS, strict=True))
            words = [
                (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
                second & mask,
                (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
                first & mask,
            ]
            key = [(part + step) & _MASK for part, step in zip(key, _WEYL, strict=True)]
        made: list[int] = np.stack(words, axis=1).reshape(-1).tolist()
        return made


class ShuffleSeeds:
    """The seeds of each epoch of one `shuffle` that was given a seed."""

    def __init__(self, seed: int) -> None:
        self._draws = Draws(_GRAPH_SEED, seed % _SEEDS)

    def of_next_epoch(self) -> Draws:
        """Return what the shuffle draws from in the next epoch."""
        return Draws(self._draws.next(), self._draws.next())


def shuffled(items: Iterator[_Item], window: int, draws: Draws) -> Iterator[_Item]:
    """Yield items as `Dataset.shuffle(window)` does: each from a random place of a buffer that is filled again."""
    ring = list(islice(items, window))
    begin, left = 0, len(ring)
    while left:
        at, chosen = begin % len(ring), (begin + draws.next() % left) % len(ring)
        ring[chosen], ring[at] = ring[at], ring[chosen]
        yield ring[at]
        following = list(islice(items, 1))
        if following:
            ring[at] = following[0]
        else:
            left -= 1
        begin += 1


def interleaved(inputs: Sequence[Callable[[], Iterator[_Item]]], cycle: int, block: int) -> Iterator[_Item]:
    """Yield items of several inputs as `Dataset.interleave` does: of `cycle` inputs in turns of `block` items."""
    waiting = deque(inputs)
    slots: list[Iterator[_Item] | None] = [None] * cycle
    at = 0
    while waiting or any(slots):
        if slots[at] is None and waiting:
            slots[at] = waiting.popleft()()
        turn = slots[at]
        if turn is not None:
            count = 0
            for count, item in enumerate(islice(turn, block), 1):  # noqa: B007
                yield item
            if count < block:
                slots[at] = None
        at = (at + 1) % cycle
