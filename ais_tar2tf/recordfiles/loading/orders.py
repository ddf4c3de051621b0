"""The orders of tf.data's `shuffle` and `interleave`, computed in Python. No I/O, no TensorFlow.

With these orders, the method `records()` of loaded record files yields records in the same order as their method
`dataset()`, but without TensorFlow.

TensorFlow draws random numbers from Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC11). A generator has two seeds. Philox computes each block of four numbers from a key and a counter. The key is the
first seed. The upper half of the counter is the second seed, and the lower half is the number of the block.

A shuffle has two generators. The first generator has the seed of the graph and the seed of the shuffle. The seed of
the graph is a constant unless `tf.random.set_seed` was called; this module always uses the constant. For each epoch,
the first generator draws two numbers. With these numbers as seeds, the second generator is made anew, and draws the
places in the buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import TypeVar

import numpy as np

__all__ = ["interleaved", "shuffle_numbers", "shuffled"]

_Item = TypeVar("_Item")

_GRAPH_SEED = 87654321  # TensorFlow's default seed of a graph
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # these, `_WEYL` and `_ROUNDS` are constants of Philox
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_BLOCKS = 1024  # so many blocks are computed together
_SEEDS = (1 << 31) - 1  # TensorFlow uses seeds modulo this number


def random_numbers(seed: int, seed2: int) -> Iterator[int]:
    """Yield the 32-bit random numbers that a generator of TensorFlow draws, given its two seeds."""
    key, high = ((each & _MASK, (each >> 32) & _MASK) for each in (seed, seed2))
    for block in count(0, _BLOCKS):
        yield from _numbers_from(block, key, high)


def _numbers_from(block: int, key: Sequence[int], high: Sequence[int]) -> list[int]:
    """Return the random numbers of `_BLOCKS` blocks, beginning with the block that has the number `block`.

    `key` is the key and `high` the upper half of the counter, each as two words of 32 bits, the lower word first.
    """
    low = np.arange(block, block + _BLOCKS, dtype=np.uint64)
    mask = np.uint64(_MASK)
    words = [low & mask, low >> np.uint64(32), *(np.full(_BLOCKS, each, np.uint64) for each in high)]
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


def shuffle_numbers(seed: int) -> Iterator[Iterator[int]]:
    """Yield, for each epoch, an iterator over the random numbers that a `shuffle` with this seed draws."""
    seeds = random_numbers(_GRAPH_SEED, seed % _SEEDS)
    while True:
        yield random_numbers(next(seeds), next(seeds))


def shuffled(items: Iterator[_Item], window: int, numbers: Iterator[int]) -> Iterator[_Item]:
    """Yield items in the order of `Dataset.shuffle(window)`.

    As in TensorFlow, a buffer holds `window` items, and one place of the buffer is the head. A random item of the
    buffer is swapped with the item at the head, and is yielded. Then the next item of `items` is put at the head, and
    the next place becomes the head. When `items` has ended, the old head stays empty, and is not drawn again.

    Args:
        items: The items.
        window: The size of the buffer.
        numbers: The random numbers of the epoch, as `shuffle_numbers` yields them.
    """
    ring = list(islice(items, window))
    begin, left = 0, len(ring)
    while left:
        at, chosen = begin % len(ring), (begin + next(numbers) % left) % len(ring)
        ring[chosen], ring[at] = ring[at], ring[chosen]
        yield ring[at]
        following = list(islice(items, 1))
        if following:
            ring[at] = following[0]
        else:
            left -= 1
        begin += 1


def interleaved(inputs: Sequence[Callable[[], Iterator[_Item]]], cycle: int, block: int) -> Iterator[_Item]:
    """Yield items in the order of `Dataset.interleave`: read `cycle` inputs in turns of `block` items each.

    At the next turn of an input that has ended, the first of `inputs` that was not opened yet takes its place.
    """
    waiting = deque(inputs)
    slots: list[Iterator[_Item] | None] = [None] * cycle
    at = 0
    while waiting or any(slots):
        if slots[at] is None and waiting:
            slots[at] = waiting.popleft()()
        turn = slots[at]
        if turn is not None:
            taken = 0
            for taken, item in enumerate(islice(turn, block), 1):  # noqa: B007
                yield item
            if taken < block:
                slots[at] = None
        at = (at + 1) % cycle
