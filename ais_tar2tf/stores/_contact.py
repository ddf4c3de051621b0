"""Which endpoints have ever answered this process, and for how long the others have given no answer. No I/O.

An endpoint that has answered is trusted to come back: a cluster restarts in the middle of a training. One that never
has is more likely misspelt, and nobody is to wait long for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ais_tar2tf import forking
from ais_tar2tf.errors import Silence, TransportError

__all__ = ["CONTACTS", "NO_ANSWER", "NO_CONNECTION", "Contacts", "Endpoint"]

Endpoint = tuple[str, str]
"""Scheme and host:port; scheme and bucket where the provider's own endpoint is meant."""

NO_CONNECTION = Silence(0.0, 0.0)
"""Marks an error of a try in which no connection came about, until the endpoint's silence is known."""

NO_ANSWER = Silence(0.0, 0.0, accepts=True)
"""The same for a try in which a connection came about, and no answer."""

_NEW_TRY = 5.0  # seconds without a try, longer than any delay between two: the next one is another call of the user's
_MOST = 1_000  # endpoints without an answer that are remembered


class Contacts:
    """What became of tries to connect, by endpoint. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = forking.lock()
        self._answered: set[Endpoint] = set()
        self._refused: dict[Endpoint, tuple[float, float]] = {}  # since when, and when last

    def now(self) -> float:
        """Return the time by which tries are measured."""
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
        """Complete the error of a try, begun at a time, by what is known of its endpoint.

        One that has answered before is tried again whatever it did this time.
        """
        error.final = error.final and not self.has_answered(endpoint)
        if error.silence is not None:
            error.silence = self.note_refusal(endpoint, began, accepts=error.silence.accepts)

    def note_refusal(self, endpoint: Endpoint, began: float, *, accepts: bool = False) -> Silence | None:
        """Note a try, begun at a time, in which no answer came, or no connection came about.

        Returns:
            For how long the endpoint has been silent; None when it has answered before.
        """
        now = self._clock()
        with self._lock:
            if endpoint in self._answered:
                return None
            since, last = self._refused.get(endpoint, (began, began))
            if began - last > _NEW_TRY:
                since = began
            if len(self._refused) >= _MOST:
                self._refused.clear()
            self._refused[endpoint] = since, now
        return Silence(now - since, now - began, accepts)

    def answered(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that have answered, for another process to begin with."""
        return tuple(self._answered)

    def begin_with(self, answered: Iterable[Endpoint]) -> None:
        """Trust endpoints that have answered another process."""
        with self._lock:
            self._answered.update(answered)


CONTACTS = Contacts()
