"""A small object, held whole: bounded before it is received, and tried again like any other read."""

from __future__ import annotations

from ais_tar2tf.account import Account
from ais_tar2tf.errors import LimitExceeded
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store

__all__ = ["fetch_whole"]


def fetch_whole(store: Store, name: str, read: Read, *, limit: str) -> bytes:
    """Return the bytes of an object.

    Args:
        store: Where it is.
        name: Its name there.
        read: How it is read.
        limit: The field of `read.limits` that says how many bytes it may have.

    Raises:
        LimitExceeded: The object has more bytes.
    """
    most: int = getattr(read.limits, limit)
    fetch = Fetch(store, iter([Span(name)]), read, Account())
    parts: list[bytes] = []
    size = 0
    try:
        fetch.next_shard()
        while block := fetch.read():
            size += len(block)
            if max(size, fetch.size or 0) > most:
                raise LimitExceeded(
                    f"the document has over {most:,} bytes, Limits.{limit}", shard=store.url(name), offset=0
                )
            parts.append(bytes(block))
    finally:
        fetch.close()
    return b"".join(parts)
