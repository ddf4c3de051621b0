"""A block cache whose failures are counted instead of raised: a broken cache costs speed, and never a record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.cache.block_cache import BlockCache, BlockId, BlockReader, BlockWriter

__all__ = ["TolerantBlockCache", "TolerantWriter"]


class TolerantBlockCache:
    """A `BlockCache` that counts failed reads and writes in `Stats.cache_faults`; only its readers raise OSError."""

    def __init__(self, cache: BlockCache, account: Account) -> None:
        self.cache = cache
        self._account = account

    @contextlib.contextmanager
    def _counting_faults(self) -> Generator[None]:
        try:
            yield
        except OSError:
            self.count_fault()

    def count_fault(self) -> None:
        self._account.add(cache_faults=1)

    def count_cached(self, count: int) -> None:
        """Count bytes that were read from the cache."""
        self._account.add(cached=count)

    def confirm(self, key: str, identity: Identity) -> None:
        with self._counting_faults():
            self.cache.confirm(key, identity)

    def has(self, block: BlockId) -> bool:
        try:
            return self.cache.has(block)
        except OSError:
            return False

    def reader(self, block: BlockId) -> BlockReader | None:
        """Open a block; return None where it is not cached.

        Raises:
            OSError: The block cannot be read.
            DamagedBlock: The block is not what was written.
        """
        try:
            return self.cache.reader(block)
        except FileNotFoundError:
            return None

    def discard(self, block: BlockId) -> None:
        """Discard a block that turned out to be unreadable, and count the fault."""
        self.count_fault()
        self.cache.discard(block)

    def writer(self, block: BlockId) -> TolerantWriter | None:
        """Begin to write a block; return None where it is cached already, has no room, or cannot be written."""
        with self._counting_faults():
            writer = None if self.cache.has(block) else self.cache.writer(block)
            return None if writer is None else TolerantWriter(writer, self.count_fault)
        return None


class TolerantWriter:
    """A block that is being written. It is aborted when writing fails."""

    def __init__(self, writer: BlockWriter, count_fault: Callable[[], None]) -> None:
        self._writer = writer
        self._count_fault = count_fault

    def add(self, data: memoryview) -> bool:
        """Write bytes to the end of the block; return False if that failed."""
        return self._try(lambda: self._writer.add(data))

    def commit(self) -> None:
        self._try(self._writer.commit)

    def abort(self) -> None:
        try:
            self._writer.abort()
        except OSError:
            self._count_fault()

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except OSError:
            self._count_fault()
            self.abort()
            return False
        return True
