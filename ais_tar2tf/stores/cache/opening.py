"""Puts a cache, which `options.Cache` describes, in front of a store. This module must not read the store."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.options import Cache, Read
from ais_tar2tf.stores import Caching, MultiRange, Store, opener_of, remember_opener
from ais_tar2tf.stores.cache.block_cache import BLOCK, BlockCache
from ais_tar2tf.stores.cache.disk import DiskBlockCache
from ais_tar2tf.stores.cache.memory import MemoryBlockCache
from ais_tar2tf.stores.cache.store import CachedRanges, CachedStore

__all__ = ["aligned_to_blocks", "block_cache_for", "cached", "in_whole_blocks"]


def cached(
    store: Store, cache: str | os.PathLike[str] | Cache, account: Account, block_cache: BlockCache | None = None
) -> CachedStore:
    """Return a store that caches what is read from `store`.

    Args:
        store: The store to wrap.
        cache: A folder, `"memory"`, or a `Cache`.
        account: Counts bytes from the cache, and faults of the cache.
        block_cache: The block cache to use. Default: a new block cache.
    """
    chosen = cache if isinstance(cache, Cache) else Cache(cache)
    kind = CachedRanges if isinstance(store, MultiRange) and store.across_objects else CachedStore
    made = kind(store, block_cache or block_cache_for(chosen), account, trust=chosen.trust)
    opener = opener_of(store)
    if opener is not None:
        # Another process can use a cache on disk, but not a cache in this process's memory. In the second case, the
        # other process opens the store without a cache.
        remember_opener(made, opener if chosen.in_memory else functools.partial(_open_cached, opener, chosen))
    return made


def in_whole_blocks(store: Store, total: int) -> Store:
    """Return a store for small reads that are spread over `total` bytes.

    If `store` has a cache, the result caches the whole blocks around the bytes that are read. Otherwise the result is
    `store`.
    """
    return store.in_whole_blocks(total) if isinstance(store, Caching) else store


def block_cache_for(cache: Cache) -> BlockCache:
    """Return a new block cache, as the options in `cache` describe it."""
    return MemoryBlockCache(cache.bound) if cache.in_memory else DiskBlockCache(cache.dir, cache.bound)


def _open_cached(opener: Callable[[], Store], cache: Cache) -> Store:
    return cached(opener(), cache, Account())


def aligned_to_blocks(read: Read) -> Read:
    """Return options with `range_bytes` rounded up to whole blocks of the cache.

    A block that arrives in two parts, by two requests, would not be cached.
    """
    return replace(read, range_bytes=-(-read.range_bytes // BLOCK) * BLOCK)
