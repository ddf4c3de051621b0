"""One URL, read once: for who passes bytes on and cannot begin again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores._answers import followed
from ais_tar2tf.stores._http import HttpPool, body_of

__all__ = ["reading"]

_BLOCK = 1 * MIB
_MOST_REDIRECTS = 3


@contextmanager
def reading(url: str, timeouts: Timeouts, *, shown: str) -> Generator[Iterator[bytes]]:
    """The blocks of an answer; errors name `shown`, since URLs may grant."""
    pool = HttpPool(timeouts)
    try:
        for _ in range(_MOST_REDIRECTS + 1):
            answer = pool.get(url, {}, shown=shown)
            if answer.redirect is None:
                break
            location = answer.redirect
            answer.drain()
            url = followed(url, location, shown)
        else:
            raise StoreError("the redirects do not end", url=shown)
        body = body_of(answer, shown, 0, None)
        assert body is not None  # no range was asked for

        def blocks() -> Iterator[bytes]:
            buffer = memoryview(bytearray(_BLOCK))
            while count := body.readinto(buffer):
                yield bytes(buffer[:count])

        try:
            yield blocks()
        finally:
            body.close()
    finally:
        pool.close()
