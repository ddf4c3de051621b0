"""Reads a small object into memory, with a bound on its size, and with retries like any other read."""

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
        store: Where the object is.
        name: The object's name in the store.
        read: The options of reading.
        limit: The name of the field of `read.limits` that bounds its size in bytes.

    Raises:
        LimitExceeded: The object has more bytes.
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
