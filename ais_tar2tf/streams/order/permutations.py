"""Permutations of `range(count)`: as lists, or computed in constant memory if they are very large. No I/O.

A permutation depends only on its length and on *words*: whole numbers such as a seed and an epoch. It must be the
same on every machine and in every version of numpy, because checkpoints rely on the order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

__all__ = ["LargePermutation", "permutation", "random_state"]

_ROUNDS = 8  # of the Feistel network
_BLOCK = 1024  # numbers of a permutation that are computed at once
_CACHED_BLOCKS = 8  # more than one, because the reader and its read-ahead are at different places
_GOLDEN = 0x9E3779B97F4A7C15  # the increment of splitmix64
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # the multipliers of splitmix64
_WORD = (1 << 64) - 1


def random_state(*words: int) -> np.random.RandomState:
    """Return a generator of random numbers that depend only on `words`, also in later versions of numpy."""
    return np.random.RandomState([part for word in words for part in (word & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF)])


def permutation(count: int, *words: int) -> Sequence[int]:
    """Return a permutation of `range(count)` that depends only on `count` and `words`."""
    order: list[int] = random_state(*words).permutation(count).tolist()
    return order


class LargePermutation:
    """A permutation of `range(count)` that depends only on `count` and `words`, computed in blocks on demand.

    A Feistel network permutes all numbers of 2k bits, where 2k bits are enough for `count`. If the network returns a
    number outside `range(count)`, this number goes through the network again, until the result is inside.

    >>> sorted(LargePermutation(5, 7).at(number) for number in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, *words: int) -> None:
        self._count = count
        self._half = max(1, -(-max(1, count - 1).bit_length() // 2))
        key = 0
        for word in words:
            key = _splitmix64(key + _GOLDEN + (word & _WORD) & _WORD)
        self._keys = [np.uint64(_splitmix64(key + _GOLDEN * number & _WORD)) for number in range(1, _ROUNDS + 1)]
        self._blocks: OrderedDict[int, list[int]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def at(self, place: int) -> int:
        """Return the number at a place of the permutation."""
        block, within = divmod(place, _BLOCK)
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = self._compute(block * _BLOCK)
            while len(self._blocks) > _CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        return found[within]

    def _compute(self, begin: int) -> list[int]:
        """Return the block of the permutation that begins at place `begin`."""
        values = np.arange(begin, min(begin + _BLOCK, self._count), dtype=np.uint64)
        values = self._network(values)
        while (outside := values >= self._count).any():
            values[outside] = self._network(values[outside])
        return values.tolist()

    def _network(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers to which the Feistel network maps `values`."""
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = values >> half, values & mask
        with np.errstate(over="ignore"):  # numbers wrap around at 64 bits
            for key in self._keys:
                hashed = right + key
                hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(_MIX[0])
                hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(_MIX[1])
                left, right = right, left ^ ((hashed ^ (hashed >> np.uint64(31))) & mask)
        return (left << half) | right


def _splitmix64(value: int) -> int:
    """Return the hash of a 64-bit number by the output function of splitmix64."""
    value = (value ^ (value >> 30)) * _MIX[0] & _WORD
    value = (value ^ (value >> 27)) * _MIX[1] & _WORD
    return value ^ (value >> 31)
