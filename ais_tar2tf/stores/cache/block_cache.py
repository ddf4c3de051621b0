"""The interface of a block cache, which keeps blocks of objects in memory or on disk, and the names of its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.options import MIB
from ais_tar2tf.stores import Identity

if TYPE_CHECKING:
    from ais_tar2tf.stores.cache.download import Downloads

__all__ = [
    "BLOCK",
    "BlockCache",
    "BlockId",
    "BlockReader",
    "BlockWriter",
    "Confirmed",
    "Content",
    "DamagedBlock",
    "block_numbers",
]

BLOCK = 2 * MIB
"""Bytes of an object that are cached together. The last block of an object may be shorter.

In this package a block is a *cache block*, at a multiple of this size, and not a block that `fetch` downloads.
"""


class DamagedBlock(Tar2TFError):
    """A cached block is not what was written. Users never see this error, because the store has the bytes."""


class Content(NamedTuple):
    """One content of an object. Each new version of the object is another content."""

    key: str  # names the object and its store
    identity: Identity

    def block(self, number: int) -> BlockId:
        """Return the name of a block of this content."""
        return BlockId(self, number)


@dataclass(frozen=True, slots=True)
class BlockId:
    """The name of one block of one content."""

    content: Content
    number: int

    @property
    def start(self) -> int:
        """The offset in the object of the block's first byte."""
        return self.number * BLOCK

    @property
    def length(self) -> int:
        """The size of the block in bytes."""
        assert self.content.identity.size is not None
        return min(BLOCK, self.content.identity.size - self.start)


class Confirmed(NamedTuple):
    """The content of an object whose blocks are cached, and when its store last confirmed it."""

    identity: Identity
    time: float  # seconds since 1970


class BlockReader(Protocol):
    """The bytes of one cached block."""

    def read(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer`, or a part of it, with verified bytes from an offset in the block; return their number."""
        ...

    def close(self) -> None: ...


class BlockWriter(Protocol):
    """A block that is being written, and cannot be read yet."""

    def add(self, data: memoryview) -> None: ...

    def commit(self) -> None:
        """Make the block readable: it is complete."""
        ...

    def abort(self) -> None:
        """Discard the block. Aborting a block again has no effect."""
        ...


class BlockCache(Protocol):
    """Blocks by their names, bounded in bytes; the least recently used blocks are evicted.

    All but `confirmed`, `forget` and `discard` may raise OSError; readers may also raise DamagedBlock.
    """

    downloads: Downloads  # the requests of this process whose blocks are written to this cache

    @property
    def bound(self) -> int:
        """The greatest sum of the blocks' sizes, in bytes."""
        ...

    def confirmed(self, key: str) -> Confirmed | None:
        """Return the content of an object whose blocks may be cached; None where there is none."""
        ...

    def confirm(self, key: str, identity: Identity) -> None:
        """Note that an object has this content now."""
        ...

    def forget(self, key: str) -> None:
        """Discard all that is cached of an object."""
        ...

    def has(self, block: BlockId) -> bool: ...

    def reader(self, block: BlockId) -> BlockReader: ...

    def writer(self, block: BlockId) -> BlockWriter | None:
        """Begin to write a block; return None where there is no room for it."""
        ...

    def discard(self, block: BlockId) -> None: ...


def block_numbers(start: int, stop: int) -> range:
    """Return the numbers of the blocks that hold the bytes from `start` to `stop`."""
    return range(start // BLOCK, -(-stop // BLOCK))
