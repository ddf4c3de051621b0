"""One URL, read once: for who passes bytes on and cannot begin again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores._http import HttpPool, body_of

__all__ = ["reading"]

_BLOCK = 1 * MIB


@contextmanager
def reading(url: str, timeouts: Timeouts, *, shown: str) -> Generator[Iterator[bytes]]:
    """The blocks of an answer; errors name `shown`, since URLs may grant."""
    pool = HttpPool(timeouts)
    try:
        body = body_of(pool.ask(url, {}, shown=shown), shown, 0, None)
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
