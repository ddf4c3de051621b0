"""Bodies that do not come through http.client: obstore's own streams, and what has no bytes left."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB, Timeouts
from ais_tar2tf.stores._base import Interrupt, ObjectInfo

__all__ = ["EmptyBody", "StreamBody"]

_CHUNK = 256 * KIB  # at least so much at once, but for the end


class EmptyBody:
    """Everything came before."""

    def __init__(self, info: ObjectInfo, start: int) -> None:
        self.info = info
        self.start = start
        self.stop: int | None = start

    def readinto(self, buffer: memoryview) -> int:
        del buffer
        return 0

    def close(self) -> None:
        pass


class StreamBody:
    """The chunks of obstore's stream. Its waits end by time-outs, not by an Interrupt."""

    def __init__(
        self, result: Any, info: ObjectInfo, shown: str, interrupt: Interrupt | None, timeouts: Timeouts
    ) -> None:
        from ais_tar2tf.stores._steps import Steps  # asyncio takes as long to import as all of this package

        self.info = info
        self.start, stop = (int(each) for each in result.range)
        self.stop: int | None = stop
        self._left = stop - self.start
        self._chunks: Steps[Any] = Steps(result.stream(_CHUNK))
        self._patience = _patience(timeouts)
        self._chunk = memoryview(b"")
        self._shown = shown
        self._interrupt = interrupt

    def readinto(self, buffer: memoryview) -> int:
        if not buffer or not self._left:
            return 0
        if not self._chunk:
            self._chunk = self._next_chunk()
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        self._left -= count
        return count

    def hand_over(self, interrupt: Interrupt | None) -> None:
        self._interrupt = interrupt

    def close(self) -> None:
        self._chunks.close()
        self._chunk, self._left = memoryview(b""), 0

    def _next_chunk(self) -> memoryview:
        if self._interrupt is not None and self._interrupt.fired:
            raise TransportError("the reader was closed", url=self._shown)
        try:
            chunk = self._chunks.next(self._patience)
        except TimeoutError:
            raise TransportError(
                f"the body broke off: {_CHUNK:,} bytes did not come in {self._patience:.0f} s, Timeouts.least_rate",
                url=self._shown,
            ) from None
        except Exception as error:  # noqa: BLE001  # whatever obstore raises; its text may hold a signature
            raise TransportError(f"the body broke off ({type(error).__name__})", url=self._shown) from None
        if not chunk:
            raise TransportError(f"the body broke off: it ended {self._left:,} bytes early", url=self._shown)
        return memoryview(chunk).cast("B")


def _patience(timeouts: Timeouts) -> float | None:
    """Return the seconds for which a chunk that comes at the least rate is waited for; None: for any rate."""
    if not timeouts.least_rate:
        return None
    return max(timeouts.slow, timeouts.idle) + _CHUNK / timeouts.least_rate
