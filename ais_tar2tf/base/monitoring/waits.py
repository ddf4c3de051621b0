"""Reports of long waits for a store, as warnings of the logger `ais_tar2tf`.

    with Wait(url) as wait:         # from now on, a thread checks how long the wait takes
        …                           # a request, for example
        wait.because(error)         # the request failed and is retried; the same wait goes on

A *cause* is a fault of one bucket or host: the server sends nothing, refuses a connection, or answers with an error
status. A cause is reported at most once in ten minutes, however many requests and threads wait because of it. There
are more reports if a Retry-After header delays the next try by 30 seconds or more: then one in 30 seconds.

This module must not end a wait: `Timeouts` and `Retry` bound waits.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import Self, TypeVar

from ais_tar2tf.base import forking, periodic
from ais_tar2tf.base.escaping import one_line
from ais_tar2tf.base.retries import repeat
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Retry

__all__ = ["REPORTS", "Reports", "Wait", "repeat_and_report"]

_Result = TypeVar("_Result")
_LOG = logging.getLogger("ais_tar2tf")
_LONG = 2.0  # seconds: people hardly notice a shorter wait
_REPORT_INTERVAL = 600.0  # seconds between two reports of the same cause
_RETRY_AFTER_INTERVAL = 30.0  # seconds between two reports if Retry-After delays the next try by at least this time
_MAX_CAUSES = 1_000  # the most causes that are remembered
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
_VARYING = re.compile(r" \(.*|[\d,]+ bytes", re.DOTALL)  # parts of an error's text that differ between requests
_SILENCE = "the server sends nothing"
_SILENCE_ENDS = "options.Timeouts(idle=…) bounds the wait"
_TRIES_END = "It is tried again as often as options.Retry(…) allows"


class Reports:
    """Reports waits, and remembers when each cause was reported. Safe to use from several threads.

    Args:
        clock: Returns seconds.
        long: The number of seconds after which a wait is reported.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, long: float = _LONG) -> None:
        self.clock = clock
        self.long = long
        self._lock = forking.lock()
        self._reported: dict[tuple[str, str], float] = {}

    def report(self, url: str, seconds: float, error: TransportError | None) -> None:
        """Warn of a wait that has taken `seconds` so far, unless its cause was reported recently.

        Args:
            url: The URL of the object that is waited for.
            seconds: The duration of the wait.
            error: The error of the last try; None if the server sends nothing.
        """
        cause = _SILENCE if error is None else error.message.removeprefix(f"{error.url}: ").partition("; ")[0]
        retry_after = _retry_after_sentence(error)
        interval = _RETRY_AFTER_INTERVAL if retry_after else _REPORT_INTERVAL
        if self._is_due((_bucket_or_host(url), _VARYING.sub("", cause)), interval):
            ends = _SILENCE_ENDS if error is None else retry_after + _TRIES_END
            values = (_redacted(url), seconds, _redacted(cause), ends)
            _LOG.warning("%s: waiting for %.0f s: %s. %s.", *values, extra={"is_wait": True})

    def _is_due(self, cause: tuple[str, str], interval: float) -> bool:
        """Return whether a cause was not reported in the last `interval` seconds; if it was not, note a report."""
        now = self.clock()
        with self._lock:
            if now - self._reported.get(cause, -interval) < interval:
                return False
            if len(self._reported) >= _MAX_CAUSES:
                self._reported.clear()
            self._reported[cause] = now
            return True


REPORTS = Reports()
"""The reports of this process."""


def _retry_after_sentence(error: TransportError | None) -> str:
    """Return a sentence about a Retry-After that delays the next try by 30 seconds or more; "" for other waits."""
    if error is None or error.retry_after is None or (error.next_try or 0) < _RETRY_AFTER_INTERVAL:
        return ""
    return (
        f"The server asked for {error.retry_after:,.0f} s (Retry-After); the next try is {error.next_try:,.0f} s "
        "after its answer (at most Retry.max_retry_after). "
    )


def _bucket_or_host(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _redacted(text: str) -> str:
    """Return a text on one line, with the secrets of its URLs removed."""
    words = (shown_url(_PASSWORD.sub("", word)) if "://" in word else word for word in text.split(" "))
    return one_line(" ".join(words))


class Wait:
    """The wait of one reader for an object. After the wait has ended, the same instance can begin another one.

    Args:
        url: The object's URL.
        silent: Report the wait only after a failed try. For requests during which a server sends nothing for long,
            such as a large upload.
        reports: The place where long waits are reported, by default `REPORTS`.
    """

    def __init__(self, url: str = "", *, silent: bool = False, reports: Reports | None = None) -> None:
        self._url = url
        self._silent = silent
        self._own_reports = reports
        self._since: float | None = None
        self._error: Callable[[], TransportError | None] = lambda: None

    @property
    def _reports(self) -> Reports:
        return self._own_reports or REPORTS

    def begin(self, url: str, error: Callable[[], TransportError | None]) -> None:
        """Begin to wait for the object at `url`. `error` returns the error of the last failed try, or None."""
        self._url, self._error, self._since = url, error, self._reports.clock()
        periodic.register(self)

    def end(self) -> None:
        """Note that the wait is over, whether or not bytes arrived."""
        self._since = None

    def because(self, error: TransportError) -> None:
        """Note that the last try failed with this error, and that another try follows."""
        self._error = lambda: error

    def __enter__(self) -> Self:
        self.begin(self._url, self._error)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def on_tick(self) -> bool:
        """Report the wait if it is long, and return whether it goes on. `base.periodic` calls this twice a second."""
        since, error = self._since, self._error()
        if since is None:
            return False
        seconds = self._reports.clock() - since
        if seconds >= self._reports.long and (error is not None or not self._silent):
            self._reports.report(self._url, seconds, error)
        return True


def repeat_and_report(
    once: Callable[[], _Result],
    retry: Retry,
    url: str,
    *,
    silent: bool = False,
) -> _Result:
    """Call `once` as `repeat` does, and report long waits for the object at `url`. `Wait` explains `silent`."""
    with Wait(url, silent=silent) as wait:
        return repeat(once, retry, pause=time.sleep, draw=random.random, on_retry=wait.because)
