"""The pace of answers: TimeoutError is raised if headers or a body arrive more slowly than `Timeouts.least_rate`.

Only the time spent waiting for the server counts. Time in which the reader is busy between two reads does not count.
This module must not send requests or retry them.
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

_BEGIN = b"HTTP/"  # the first bytes of every answer
_MAX_INTERIM = 16  # the most interim answers (status 1xx) before the final answer; servers send one or two


class Pace:
    """A meter of the bytes of one answer.

    Each time the reader has waited `Timeouts.slow` seconds (or `Timeouts.idle`, if that is longer), the meter
    compares the rate of the bytes that arrived in this time with `Timeouts.least_rate`.
    """

    __slots__ = ("_rate", "_received", "_waited", "_window", "clock")

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._rate = timeouts.least_rate
        # Seconds of waiting between two comparisons. A single wait may take `idle` seconds without being too slow.
        self._window = max(timeouts.slow, timeouts.idle)
        self._received = 0
        self._waited = 0.0

    def restart(self) -> None:
        """Count again from 0, for the next part of an answer."""
        self._received, self._waited = 0, 0.0

    def note(self, received: int, waited: float) -> None:
        """Count received bytes, and the seconds spent waiting for these bytes.

        Raises:
            TimeoutError: The bytes arrive too slowly.
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
    """The raw stream of a socket. Each read tells a `Pace` how many bytes it returned, and how long it waited."""

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
    """An answer of http.client whose headers and body are checked by a `Pace`.

    A server may send interim answers (status 1xx) before the final answer. http.client skips only interim answers
    with status 100. This class skips interim answers with any status but 101, up to `_MAX_INTERIM` of them. It also
    bounds the size of trailers, which are headers after the body.
    """

    _interim = 0

    def __init__(self, sock: socket.socket, *args: Any, pace: Pace, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.pace: Pace = pace
        self.fp = io.BufferedReader(_PacedReader(self.fp.detach(), pace))  # type: ignore[attr-defined]

    def begin(self) -> None:
        super().begin()
        self.pace.restart()

    def _read_status(self) -> tuple[str, int, str]:
        """Read a status line. Return every interim status but 101 as 100, so that http.client skips the answer."""
        begun: bytes = self.fp.peek(len(_BEGIN))
        if begun[: len(_BEGIN)] != _BEGIN[: len(begun)]:  # not HTTP: do not wait for the end of a line
            raise http.client.BadStatusLine(begun.decode("latin-1").partition("\n")[0])
        version, status, reason = super()._read_status()  # type: ignore[misc]  # no public method does this
        if not 100 <= status < 200 or status == http.client.SWITCHING_PROTOCOLS:
            return version, status, reason
        self._interim += 1
        if self._interim > _MAX_INTERIM:
            raise http.client.HTTPException(f"more than {_MAX_INTERIM} interim answers")
        self.pace.restart()  # the server is at work, so its next answer gets the full time
        return version, http.client.CONTINUE, reason

    def _read_and_discard_trailer(self) -> None:
        http.client.parse_headers(self.fp)  # bounds the number of lines, as the replaced method does not


def paced(timeouts: Timeouts, clock: Callable[[], float] = time.monotonic) -> Any:
    """Return a `response_class` for a connection of http.client or urllib3.

    The pace of each answer of this connection is checked by a `Pace` with `timeouts`.
    """

    def respond(sock: socket.socket, *args: Any, **options: Any) -> PacedResponse:
        return PacedResponse(sock, *args, pace=Pace(timeouts, clock), **options)

    return respond
