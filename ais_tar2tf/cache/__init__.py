"""What was read stays here for the next epoch: a store in front of a store. It may cost speed, never a record.

Objects are kept in blocks of 2 MiB, each checked page by page when it is read. What is not here, was damaged, or is
of another content than the store has now comes from the store, and is kept on its way.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.cache._disk import DiskShelf
from ais_tar2tf.cache._memory import MemoryShelf
from ais_tar2tf.cache._shelf import BLOCK, Shelf
from ais_tar2tf.cache._store import CachedRanges, CachedStore
from ais_tar2tf.options import Cache, Read
from ais_tar2tf.stores import Ranges, Store

__all__ = ["BLOCK", "CachedStore", "Shelf", "aligned", "cached", "in_whole_blocks", "shelf_of"]


def cached(
    store: Store, cache: str | os.PathLike[str] | Cache, account: Account, shelf: Shelf | None = None
) -> CachedStore:
    """`store` behind a cache, which is a folder, `"memory"`, or an option; `shelf` where it was made already."""
    chosen = cache if isinstance(cache, Cache) else Cache(cache)
    # Another process can have what is on disk; what is in memory stays here.
    reopen = None if chosen.in_memory else functools.partial(_again, chosen)
    kind = CachedRanges if isinstance(store, Ranges) and store.across_objects else CachedStore
    return kind(store, shelf or shelf_of(chosen), account, trust=chosen.trust, reopen=reopen)


def in_whole_blocks(store: Store, total: int) -> Store:
    """The same store, for who reads small ranges all over `total` bytes; a cached one keeps their blocks."""
    return store.in_whole_blocks(total) if isinstance(store, CachedStore) else store


def shelf_of(cache: Cache) -> Shelf:
    """Where the blocks are."""
    return MemoryShelf(cache.bound) if cache.in_memory else DiskShelf(cache.dir, cache.bound)


def _again(cache: Cache, store: Store) -> Store:
    return cached(store, cache, Account())


def aligned(read: Read) -> Read:
    """Asking for whole blocks at once: a block of which two requests bring a part each is not kept."""
    return replace(read, range_bytes=-(-read.range_bytes // BLOCK) * BLOCK)
