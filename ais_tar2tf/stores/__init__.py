"""Stores read and write objects. Each kind of store has a module, and the scheme of a URL says which kind it is.

A store must not know what a shard is.
"""

from __future__ import annotations

from ais_tar2tf.stores.base import Body, Identity, Interrupt, ObjectInfo, Store
from ais_tar2tf.stores.buckets import check_bucket
from ais_tar2tf.stores.capabilities import (
    Caching,
    LocalFiles,
    MultiRange,
    MultiRangeAnswer,
    SeekableBody,
    TransferableBody,
)
from ais_tar2tf.stores.opening import (
    Access,
    check_access,
    has_endpoint,
    has_listing,
    open_store,
    opener_of,
    portable_opener,
    remember_opener,
    split_url,
)
from ais_tar2tf.stores.transport.tokens import TokenSource
from ais_tar2tf.stores.wrapper import WrapperStore

__all__ = [
    "Access",
    "Body",
    "Caching",
    "Identity",
    "Interrupt",
    "LocalFiles",
    "MultiRange",
    "MultiRangeAnswer",
    "ObjectInfo",
    "SeekableBody",
    "Store",
    "TokenSource",
    "TransferableBody",
    "WrapperStore",
    "check_access",
    "check_bucket",
    "has_endpoint",
    "has_listing",
    "open_store",
    "opener_of",
    "portable_opener",
    "remember_opener",
    "split_url",
]
