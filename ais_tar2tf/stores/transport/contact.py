"""Knows which endpoints have answered this process, and for how long the other endpoints have been silent.

Clusters may restart during a training, so requests to an endpoint that has answered are retried for a long time. An
endpoint that has never answered is probably misspelt, so requests to it are retried for a short time only.

This module must not do I/O or retry by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ais_tar2tf.base import forking
from ais_tar2tf.errors import Silence, TransportError

__all__ = ["CONTACTS", "NO_ANSWER", "NO_CONNECTION", "Contacts", "Endpoint"]

Endpoint = tuple[str, str]
"""The scheme and host:port of a server. For the default endpoint of a cloud, the scheme and the bucket."""

NO_CONNECTION = Silence(0.0, 0.0)
"""Marks the error of a try that got no connection, until `Contacts.note_failure` replaces the mark."""

NO_ANSWER = Silence(0.0, 0.0, accepts=True)
"""Marks the error of a try that got a connection and no answer, until `Contacts.note_failure` replaces the mark."""

_NEW_CALL = 5.0  # if a try begins more seconds than this after the last failure, the silence is counted anew
_MAX_SILENT = 1_000  # how many silent endpoints are remembered at most; beyond this, all are forgotten


class Contacts:
    """The outcomes of tries, by endpoint. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = forking.lock()
        self._answered: set[Endpoint] = set()
        # By endpoint: when the silence began (with the first failed try), and when the last failed try ended.
        self._refused: dict[Endpoint, tuple[float, float]] = {}

    def now(self) -> float:
        """Return the time of the clock that measures tries."""
        return self._clock()

    def note_answer(self, endpoint: Endpoint) -> None:
        """Note that an endpoint answered, whatever the answer was."""
        if endpoint not in self._answered:
            with self._lock:
                self._answered.add(endpoint)
                self._refused.pop(endpoint, None)

    def has_answered(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint has ever answered."""
        return endpoint in self._answered

    def note_failure(self, error: TransportError, endpoint: Endpoint, began: float) -> None:
        """Complete the error of a try, which began at the time `began`, with the silence of the endpoint.

        A final error is not retried. If the endpoint has answered before, no error is final.
        """
        error.final = error.final and not self.has_answered(endpoint)
        if error.silence is not None:
            error.silence = self.note_refusal(endpoint, began, accepts=error.silence.accepts)

    def note_refusal(self, endpoint: Endpoint, began: float, *, accepts: bool = False) -> Silence | None:
        """Note a try that got no answer, and return the silence of its endpoint.

        Args:
            endpoint: The endpoint that was tried.
            began: When the try began.
            accepts: Whether the try got a connection.

        Returns:
            The silence of the endpoint; None if the endpoint has answered before.
        """
        now = self._clock()
        with self._lock:
            if endpoint in self._answered:
                return None
            since, last = self._refused.get(endpoint, (began, began))
            if began - last > _NEW_CALL:
                since = began
            if endpoint not in self._refused and len(self._refused) >= _MAX_SILENT:
                self._refused.clear()
            self._refused[endpoint] = since, now
        return Silence(now - since, now - began, accepts)

    def answered(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that have answered, so that the caller can pass them to another process."""
        return tuple(self._answered)

    def begin_with(self, answered: Iterable[Endpoint]) -> None:
        """Treat endpoints that have answered another process as if they had answered this process."""
        with self._lock:
            self._answered.update(answered)


CONTACTS = Contacts()
