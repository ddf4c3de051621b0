"""The body of an object in a cloud, which the library obstore downloads instead of http.client.

This module must not send requests: its caller has sent the request, and passes obstore's result.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB, Timeouts
from ais_tar2tf.stores.base import Body, Interrupt, ObjectInfo

__all__ = ["StreamBody"]

_PIECE_BYTES = 256 * KIB  # obstore returns at least this many bytes at once, except at the end


class StreamBody(Body):
    """A body whose bytes come in pieces from obstore. A timeout ends the wait for a piece.

    An `Interrupt`, by which another thread ends the reading, takes effect only between two pieces.
    """

    def __init__(
        self, result: Any, info: ObjectInfo, shown: str, interrupt: Interrupt | None, timeouts: Timeouts
    ) -> None:
        from ais_tar2tf.stores.async_steps import Steps  # late: asyncio takes as long to import as this package

        self.info = info
        self.start, stop = (int(each) for each in result.range)
        self.stop: int | None = stop
        self._left = stop - self.start
        self._pieces: Steps[Any] = Steps(result.stream(_PIECE_BYTES))
        self._timeout = _piece_timeout(timeouts)
        self._piece = memoryview(b"")
        self._shown = shown
        self._interrupt = interrupt

    def readinto(self, buffer: memoryview) -> int:
        if not buffer or not self._left:
            return 0
        if not self._piece:
            self._piece = self._next_piece()
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self._left -= count
        return count

    def hand_over(self, interrupt: Interrupt | None) -> None:
        self._interrupt = interrupt

    def close(self) -> None:
        self._pieces.close()
        self._piece, self._left = memoryview(b""), 0

    def _next_piece(self) -> memoryview:
        if self._interrupt is not None and self._interrupt.fired:
            raise TransportError("the reader was closed", url=self._shown)
        try:
            piece = self._pieces.next(self._timeout)
        except TimeoutError:
            raise TransportError(
                f"the body broke off: {_PIECE_BYTES:,} bytes did not come in {self._timeout:.0f} s, "
                "Timeouts.least_rate",
                url=self._shown,
            ) from None
        except Exception as error:  # noqa: BLE001  # many classes of errors; texts may hold a signature
            raise TransportError(f"the body broke off ({type(error).__name__})", url=self._shown) from None
        if not piece:
            raise TransportError(f"the body broke off: it ended {self._left:,} bytes early", url=self._shown)
        return memoryview(piece).cast("B")


def _piece_timeout(timeouts: Timeouts) -> float | None:
    """Return how many seconds a piece may take; None if every rate is accepted.

    A piece may take the time that it needs at the rate `least_rate`, plus the longer of `slow` and `idle`.
    """
    if not timeouts.least_rate:
        return None
    return max(timeouts.slow, timeouts.idle) + _PIECE_BYTES / timeouts.least_rate
