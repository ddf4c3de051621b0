"""A block cache in this process's memory. This module must not do I/O: its callers download the blocks."""

from __future__ import annotations

import time
from collections import OrderedDict

from ais_tar2tf.base import forking
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.cache.block_cache import BlockId, Confirmed
from ais_tar2tf.stores.cache.download import Downloads

__all__ = ["MemoryBlockCache"]


class _MemoryReader:
    """A `BlockReader` that reads a block in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, buffer: memoryview) -> int:
        piece = memoryview(self._data)[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        pass


class _MemoryWriter:
    """A `BlockWriter` that writes a block to memory."""

    def __init__(self, cache: MemoryBlockCache, block: BlockId) -> None:
        self._cache = cache
        self._block = block
        self._data = bytearray()

    def add(self, data: memoryview) -> None:
        self._data += data

    def commit(self) -> None:
        self._cache.put(self._block, bytes(self._data))

    def abort(self) -> None:
        self._data.clear()


class MemoryBlockCache:
    """A `BlockCache` in this process's memory. It can be used from several threads.

    All blocks together have at most `bound` bytes. The small entries that `confirm` adds do not count.
    """

    def __init__(self, bound: int) -> None:
        self.bound: int = bound
        self._lock = forking.lock()
        self._confirmed: dict[str, Confirmed] = {}  # each key names an object and its store
        self._blocks: OrderedDict[BlockId, bytes] = OrderedDict()  # the least recently used block comes first
        self._size = 0
        self.downloads: Downloads = Downloads()
        forking.at_fork(self)

    def forked(self) -> None:
        """Compute the size again in a forked child: the parent may have been in the middle of an update."""
        self._size = sum(map(len, self._blocks.values()))

    def confirmed(self, key: str) -> Confirmed | None:
        with self._lock:
            return self._confirmed.get(key)

    def confirm(self, key: str, identity: Identity) -> None:
        with self._lock:
            self._confirmed[key] = Confirmed(identity, time.time())

    def forget(self, key: str) -> None:
        with self._lock:
            self._confirmed.pop(key, None)
            for block in [block for block in self._blocks if block.content.key == key]:
                self._size -= len(self._blocks.pop(block))

    def has(self, block: BlockId) -> bool:
        with self._lock:
            return block in self._blocks

    def reader(self, block: BlockId) -> _MemoryReader:
        with self._lock:
            data = self._blocks.get(block)
            if data is None:
                raise FileNotFoundError(block.content.key)
            self._blocks.move_to_end(block)
            return _MemoryReader(data)

    def writer(self, block: BlockId) -> _MemoryWriter | None:
        return _MemoryWriter(self, block) if block.length <= self.bound else None

    def discard(self, block: BlockId) -> None:
        with self._lock:
            self._size -= len(self._blocks.pop(block, b""))

    def put(self, block: BlockId, data: bytes) -> None:
        """Add a complete block, and evict the least recently used blocks until the bound is kept."""
        with self._lock:
            self._size += len(data) - len(self._blocks.pop(block, b""))
            self._blocks[block] = data
            while self._size > self.bound:
                _, evicted = self._blocks.popitem(last=False)
                self._size -= len(evicted)
