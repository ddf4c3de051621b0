"""Reads a whole small object, such as a document, into memory.

The size of the object is bounded. Failed requests are retried in the same way as requests for shards. This module
must not read shards, because a shard is never held whole in memory.
"""

from __future__ import annotations

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import LimitExceeded
from ais_tar2tf.fetch.fetcher import Fetcher
from ais_tar2tf.fetch.ranges import ShardRange
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store

__all__ = ["fetch_whole"]


def fetch_whole(store: Store, name: str, read: Read, *, limit: str) -> bytes:
    """Return all bytes of an object.

    Args:
        store: The store of the object.
        name: The object's name in the store.
        read: The options for reading, such as timeouts and limits.
        limit: The name of the field in `read.limits` that bounds the size of the object in bytes.

    Raises:
        LimitExceeded: The object has more bytes than the limit.
    """
    most: int = getattr(read.limits, limit)
    fetcher = Fetcher(store, iter([ShardRange(name)]), read, Account())
    parts: list[bytes] = []
    size = 0
    try:
        fetcher.next_shard()
        while block := fetcher.read():
            size += len(block)
            if max(size, fetcher.size or 0) > most:
                raise LimitExceeded(
                    f"the document has over {most:,} bytes, Limits.{limit}", shard=store.url(name), offset=0
                )
            parts.append(bytes(block))
    finally:
        fetcher.close()
    return b"".join(parts)
