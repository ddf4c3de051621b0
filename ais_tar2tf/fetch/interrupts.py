"""Keeps a list of the store requests in flight, so that another thread can interrupt them.

`fetch` plans range requests, and sends store requests. A store request brings the bytes of one range request, or of
several range requests that are combined. This module must not plan or send requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import Interrupt

__all__ = ["Interrupts"]

_LET_FINISH = 256 * KIB  # to receive so few remaining bytes of a request costs less than a new connection


class Interrupts:
    """A list of the store requests in flight, with the `Interrupt` of each. `DownloadState.lock` guards this list."""

    def __init__(self, state: DownloadState) -> None:
        self._state = state
        self._in_flight: dict[Interrupt, Sequence[RangeRequest]] = {}

    @contextlib.contextmanager
    def register(self, requests: Sequence[RangeRequest]) -> Generator[Interrupt | None]:
        """Register a store request while the `with` statement runs; yield its `Interrupt`.

        `requests` are the range requests whose bytes the store request brings. If none of them needs bytes any more,
        register nothing and yield None.
        """
        with self._state.lock:
            interrupt = None if all(map(self._state.is_over, requests)) else Interrupt()
            if interrupt is not None:
                self._in_flight[interrupt] = requests
        try:
            yield interrupt
        finally:
            if interrupt is not None:
                with self._state.lock:
                    del self._in_flight[interrupt]

    def end_abandoned(self, abandoned: Sequence[RangeRequest], *, at_once: bool = False) -> None:
        """Interrupt the store requests all of whose range requests are abandoned. The caller holds the lock.

        A store request is left alone if none of its range requests is in `abandoned`. A store request whose range
        requests each miss only few bytes is not interrupted, because then another request can use its connection
        later.

        Args:
            abandoned: The range requests that the reader has just abandoned.
            at_once: Whether to interrupt also store requests that miss only few bytes.
        """
        for interrupt, requests in self._in_flight.items():
            if not any(request in abandoned for request in requests):
                continue
            if all(request.is_abandoned for request in requests) and (at_once or any(map(_is_long, requests))):
                interrupt.fire()

    def end_all(self, grace: float) -> None:
        """Interrupt the store requests that do not end by themselves within `grace` seconds.

        During this time a cache may park requests: the cache keeps them open for a later reader. If `grace` is 0, no
        request is parked. The caller has closed the `DownloadState`, and does not hold its lock.
        """
        with self._state.lock:
            for interrupt in self._in_flight if grace else ():
                interrupt.may_park = True
            self._state.lock.wait_for(lambda: not self._in_flight, grace)
            interrupts = list(self._in_flight)
        for interrupt in interrupts:
            interrupt.fire()

    def clear(self) -> None:
        """Forget all store requests. A forked child calls this method, because the requests belong to the parent."""
        self._in_flight.clear()


def _is_long(request: RangeRequest) -> bool:
    return request.missing is None or request.missing > _LET_FINISH
