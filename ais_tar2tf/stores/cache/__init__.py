"""A store that wraps another store and caches its bytes, in memory or in a folder."""

from __future__ import annotations

from ais_tar2tf.stores.cache.block_cache import BLOCK, BlockCache
from ais_tar2tf.stores.cache.opening import aligned_to_blocks, block_cache_for, cached, in_whole_blocks
from ais_tar2tf.stores.cache.store import CachedStore

__all__ = [
    "BLOCK",
    "BlockCache",
    "CachedStore",
    "aligned_to_blocks",
    "block_cache_for",
    "cached",
    "in_whole_blocks",
]
