"""Reads a URL once, without retries: for callers that pass the bytes on at once and cannot begin again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores.transport.bodies import body_of
from ais_tar2tf.stores.transport.pool import HttpPool

__all__ = ["open_blocks"]

_BLOCK = 1 * MIB


@contextmanager
def open_blocks(url: str, timeouts: Timeouts, *, shown: str) -> Generator[Iterator[bytes]]:
    """Open a URL, and yield the blocks of its answer. Errors name `shown`, because the URL may hold a signature."""
    with closing(HttpPool(timeouts)) as pool:
        body = body_of(pool.request(url, {}, shown=shown), shown, 0, None)
        assert body is not None  # only a request for a range can have no body

        def blocks() -> Iterator[bytes]:
            buffer = memoryview(bytearray(_BLOCK))
            while count := body.readinto(buffer):
                yield bytes(buffer[:count])

        with closing(body):
            yield blocks()
