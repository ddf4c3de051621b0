"""A permutation of very many numbers, in constant memory: any of it is worked out where it is needed.

A Feistel network permutes the numbers of 2k bits; what falls outside goes through it again until it falls inside.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

__all__ = ["Permutation"]

_ROUNDS = 8
_BLOCK = 1024  # worked out at once
_BLOCKS = 8  # kept: those who read and those who read ahead are at different places
_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's constants
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD = (1 << 64) - 1


def _mixed(value: int) -> int:
    """splitmix64 of one number."""
    value = (value ^ (value >> 30)) * _MIX[0] & _WORD
    value = (value ^ (value >> 27)) * _MIX[1] & _WORD
    return value ^ (value >> 31)


class Permutation:
    """Of `range(count)`; it depends on `words` alone.

    >>> sorted(Permutation(5, 7).at(number) for number in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, *words: int) -> None:
        self._count = count
        self._half = max(1, -(-max(1, count - 1).bit_length() // 2))
        key = 0
        for word in words:
            key = _mixed(key + _GOLDEN + (word & _WORD) & _WORD)
        self._keys = [np.uint64(_mixed(key + _GOLDEN * number & _WORD)) for number in range(1, _ROUNDS + 1)]
        self._blocks: OrderedDict[int, list[int]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def at(self, place: int) -> int:
        """The number at a place."""
        block, within = divmod(place, _BLOCK)
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = self._worked_out(block * _BLOCK)
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return found[within]

    def _worked_out(self, begin: int) -> list[int]:
        values = np.arange(begin, min(begin + _BLOCK, self._count), dtype=np.uint64)
        values = self._through(values)
        while (outside := values >= self._count).any():
            values[outside] = self._through(values[outside])
        return values.tolist()

    def _through(self, values: np.ndarray) -> np.ndarray:
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = values >> half, values & mask
        with np.errstate(over="ignore"):  # it wraps on purpose
            for key in self._keys:
                hashed = right + key
                hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(_MIX[0])
                hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(_MIX[1])
                left, right = right, left ^ ((hashed ^ (hashed >> np.uint64(31))) & mask)
        return (left << half) | right
