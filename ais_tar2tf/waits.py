"""Long waits for a store: each cause is reported once, by a warning of the logger `ais_tar2tf`.

    with Wait(url) as wait:         # the lookout's thread watches it from now on
        …                           # a request, for example
        wait.because(error)         # it failed, and is tried again: the same wait goes on

A cause is what is wrong (the server sends nothing, a refused connection, a status) and where: the bucket or host.
However many requests and threads wait for the same cause, it is reported once in ten minutes; twice in a minute
while a server's Retry-After keeps tries far apart.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Self

from ais_tar2tf import forking, lookout
from ais_tar2tf.errors import TransportError
from ais_tar2tf.escaping import one_line
from ais_tar2tf.signed_urls import shown_url

__all__ = ["REPORTS", "Reports", "Wait"]

_LOG = logging.getLogger("ais_tar2tf")
_LONG = 2.0  # seconds: about as long as people wait without wondering
_AGAIN = 600.0  # seconds after which a cause that is still there is reported again
_AGAIN_ASKED = 30.0  # the same for a wait that the server asked for, when the next try is as far away
_MOST = 1_000  # causes that are remembered
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
_VARYING = re.compile(r" \(.*|[\d,]+ bytes", re.DOTALL)  # of an error's text, from one request to the next
_SILENCE = "the server sends nothing"
_ENDS = "options.Timeouts(idle=…) bounds the wait"
_ENDS_AFTER_TRIES = "It is tried again as often as options.Retry(…) allows"


class Reports:
    """Which causes were reported, and when. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, long: float = _LONG) -> None:
        self.clock = clock
        self.long = long  # seconds from which on a wait is reported
        self._lock = forking.lock()
        self._reported: dict[tuple[str, str], float] = {}

    def report(self, url: str, seconds: float, error: TransportError | None) -> None:
        """Warn of a wait that has taken so long, unless its cause was reported in the last minutes."""
        cause = _SILENCE if error is None else error.message.removeprefix(f"{error.url}: ").partition("; ")[0]
        asked = _asked(error)
        if self._is_new((_place(url), _VARYING.sub("", cause)), _AGAIN_ASKED if asked else _AGAIN):
            ends = _ENDS if error is None else asked + _ENDS_AFTER_TRIES
            told = (_redacted(url), seconds, _redacted(cause), ends)
            _LOG.warning("%s: waiting for %.0f s: %s. %s.", *told, extra={"is_wait": True})

    def _is_new(self, cause: tuple[str, str], again: float) -> bool:
        now = self.clock()
        with self._lock:
            if now - self._reported.get(cause, -again) < again:
                return False
            if len(self._reported) >= _MOST:
                self._reported.clear()
            self._reported[cause] = now
            return True


REPORTS = Reports()
"""Those of this process."""


def _asked(error: TransportError | None) -> str:
    """Return a sentence on a long wait that the server asked for; nothing for any other wait."""
    if error is None or error.retry_after is None or (error.next_try or 0) < _AGAIN_ASKED:
        return ""
    return (
        f"The server asked for {error.retry_after:,.0f} s (Retry-After); the next try is {error.next_try:,.0f} s "
        "after its answer (at most Retry.max_retry_after). "
    )


def _place(url: str) -> str:
    """Return the bucket or host of a URL."""
    return "/".join(url.split("/", 3)[:3])


def _redacted(text: str) -> str:
    """Return a URL, or a text with URLs, without what lets its bearer in, on one line."""
    words = (shown_url(_PASSWORD.sub("", word)) if "://" in word else word for word in text.split(" "))
    return one_line(" ".join(words))


class Wait:
    """One wait after another of the same reader, for what is at a URL."""

    def __init__(self, url: str = "", *, silent: bool = False, reports: Reports | None = None) -> None:
        self._url = url
        self._silent = silent  # silence alone is no cause: something large is sent to the server, for example
        self._own = reports
        self._since: float | None = None
        self._error: Callable[[], TransportError | None] = lambda: None

    @property
    def _reports(self) -> Reports:
        return self._own or REPORTS

    def begin(self, url: str, error: Callable[[], TransportError | None]) -> None:
        """Begin to wait for what is at `url`; `error` returns what the last try for it ended with."""
        self._url, self._error, self._since = url, error, self._reports.clock()
        lookout.watch(self)

    def end(self) -> None:
        """Note that what was waited for is there, or will not come."""
        self._since = None

    def because(self, error: TransportError) -> None:
        """Note that the last try ended with an error, and that another one follows."""
        self._error = lambda: error

    def __enter__(self) -> Self:
        self.begin(self._url, self._error)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def look(self) -> bool:
        """Report the wait when it has become long; return whether it goes on."""
        since, error = self._since, self._error()
        if since is None:
            return False
        seconds = self._reports.clock() - since
        if seconds >= self._reports.long and (error is not None or not self._silent):
            self._reports.report(self._url, seconds, error)
        return True
