"""How fast an answer comes: one that drips below any useful rate ends, in its headers as in its body.

What counts is time spent waiting for the server. A reader that takes its time is not waiting.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any

from ais_tar2tf.options import Timeouts

__all__ = ["Pace", "PacedResponse", "paced"]

_BEGIN = b"HTTP/"  # of every answer
_MOST_INTERIM = 16  # answers before the final one; servers send one or two


class Pace:
    """Compares what came with `Timeouts.least_rate`, whenever `Timeouts.slow` seconds were spent waiting for it."""

    __slots__ = ("_came", "_rate", "_waited", "_window", "clock")

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._rate = timeouts.least_rate
        self._window = max(timeouts.slow, timeouts.idle)  # silence is not yet slow
        self._came = 0
        self._waited = 0.0

    def restart(self) -> None:
        """Begin to count again: what comes now is another part of the answer."""
        self._came, self._waited = 0, 0.0

    def note(self, came: int, waited: float) -> None:
        """Count bytes that came, and the seconds that the server was waited for.

        Raises:
            TimeoutError: They come too slowly.
        """
        self._came += came
        self._waited += waited
        if self._waited < self._window:
            return
        if self._came < self._rate * self._waited:
            raise TimeoutError(
                f"{self._came:,} bytes came in {self._waited:.0f} s, Timeouts.least_rate is {self._rate:g} a second"
            )
        self.restart()


class _PacedReader(io.RawIOBase):
    """What comes from a socket, noted."""

    def __init__(self, raw: Any, pace: Pace) -> None:
        self._raw = raw
        self._pace = pace

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:
        began = self._pace.clock()
        count = self._raw.readinto(buffer)
        self._pace.note(count or 0, self._pace.clock() - began)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class PacedResponse(http.client.HTTPResponse):
    """Passes over every interim answer (http.client knows 100 alone), and reads no more than is sensible."""

    _interim = 0

    def __init__(self, sock: socket.socket, *args: Any, pace: Pace, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.pace: Pace = pace
        self.fp = io.BufferedReader(_PacedReader(self.fp.detach(), pace))  # type: ignore[attr-defined]

    def begin(self) -> None:
        super().begin()
        self.pace.restart()

    def _read_status(self) -> tuple[str, int, str]:
        begun: bytes = self.fp.peek(len(_BEGIN))
        if begun[: len(_BEGIN)] != _BEGIN[: len(begun)]:  # a whole line of it may never come
            raise http.client.BadStatusLine(begun.decode("latin-1").partition("\n")[0])
        version, status, reason = super()._read_status()  # type: ignore[misc]  # no public way in
        if not 100 <= status < 200 or status == http.client.SWITCHING_PROTOCOLS:
            return version, status, reason
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            raise http.client.HTTPException(f"more than {_MOST_INTERIM} interim answers")
        self.pace.restart()  # a server that works says so
        return version, http.client.CONTINUE, reason

    def _read_and_discard_trailer(self) -> None:
        http.client.parse_headers(self.fp)  # which knows a bound


def paced(timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> Any:
    """Return what http.client's connections and those made of them take as their `response_class`."""

    def respond(sock: socket.socket, *args: Any, **options: Any) -> PacedResponse:
        return PacedResponse(sock, *args, pace=Pace(timeouts, clock), **options)

    return respond
