"""The pace of answers: headers or a body that arrive slower than `Timeouts.least_rate` raise TimeoutError.

Only the time of waiting for the server counts, and not the time of the reader between two reads.
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
_MAX_INTERIM = 16  # answers before the final one; servers send one or two


class Pace:
    """A meter that compares received bytes with `Timeouts.least_rate` after each `Timeouts.slow` seconds of waits."""

    __slots__ = ("_rate", "_received", "_waited", "_window", "clock")

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._rate = timeouts.least_rate
        self._window = max(timeouts.slow, timeouts.idle)  # a wait that `idle` allows is not too slow
        self._received = 0
        self._waited = 0.0

    def restart(self) -> None:
        """Start to count again for another part of the answer."""
        self._received, self._waited = 0, 0.0

    def note(self, received: int, waited: float) -> None:
        """Count received bytes, and the seconds of waiting for them.

        Raises:
            TimeoutError: The bytes come too slowly.
        """
        self._received += received
        self._waited += waited
        if self._waited < self._window:
            return
        if self._received < self._rate * self._waited:
            raise TimeoutError(
                f"{self._received:,} bytes came in {self._waited:.0f} s, "
                f"Timeouts.least_rate is {self._rate:g} a second"
            )
        self.restart()


class _PacedReader(io.RawIOBase):
    """The raw stream of a socket. Reports its bytes and waits to a `Pace`."""

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
    """An answer that is paced, skips all interim answers (http.client skips only status 100), and is bounded."""

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
        if begun[: len(_BEGIN)] != _BEGIN[: len(begun)]:  # the rest of the line may never arrive
            raise http.client.BadStatusLine(begun.decode("latin-1").partition("\n")[0])
        version, status, reason = super()._read_status()  # type: ignore[misc]  # no public way in
        if not 100 <= status < 200 or status == http.client.SWITCHING_PROTOCOLS:
            return version, status, reason
        self._interim += 1
        if self._interim > _MAX_INTERIM:
            raise http.client.HTTPException(f"more than {_MAX_INTERIM} interim answers")
        self.pace.restart()  # an interim answer shows that the server is at work
        return version, http.client.CONTINUE, reason

    def _read_and_discard_trailer(self) -> None:
        http.client.parse_headers(self.fp)  # bounded, unlike http.client's own loop


def paced(timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> Any:
    """Return a `response_class` for connections of http.client, and of urllib3, which derives from them."""

    def respond(sock: socket.socket, *args: Any, **options: Any) -> PacedResponse:
        return PacedResponse(sock, *args, pace=Pace(timeouts, clock), **options)

    return respond
