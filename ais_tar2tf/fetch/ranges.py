"""The input and the output of a fetcher: ranges of shards go in, and blocks of bytes come out. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.stores import Identity

__all__ = ["BLOCK_BYTES", "HEADROOM", "Block", "ShardRange"]

BLOCK_BYTES = 2 * MIB  # so large that system calls and numpy cost little; so small that the processor can cache it

HEADROOM = 256 * KIB
"""Room in a buffer before its block, for the last bytes of the block before: see `again` of `Fetcher.read`."""


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The range of one shard that is to be read: from `start` to `stop`, or to the shard's end if `stop` is None."""

    name: str
    start: int = 0
    identity: Identity = field(default_factory=Identity)
    """The identity that a position or an index states; empty without one."""
    stop: int | None = None
    begins: Callable[[], Sequence[int]] | None = field(default=None, compare=False)
    """Returns the ascending offsets at which records begin, and the end of the last record. None without an index."""
    bound: bool = False
    """Whether reading fails if the shard does not have `identity`."""


class Block(NamedTuple):
    """Received bytes: those of `buffer` from `begin` to `end`."""

    buffer: memoryview
    begin: int
    end: int
    prefix_hash: str = ""  # of the shard up to the end of the block, if the store states no strong validator
