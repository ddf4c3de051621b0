"""How many connections pay off: found from what the first seconds show, within bounds. Pure.

They grow while the reader mostly waits for bytes. A number of them that brings no bytes faster is taken back, and
then it stays. Ranges are as large as a store likes them until more connections share the read-ahead. Nothing of this
changes what is read, or in which order.
"""

from __future__ import annotations

import threading

from ais_tar2tf.options import MIB, Read

__all__ = ["Tuning"]

_INTERVAL = 0.5  # seconds of measurement before each decision: some hundred round trips
_WAITING = 0.5  # of that time; below this the network is not what holds it up
_FASTER = 1.15  # at least, for more connections to be worth their cost at the store
_PIECE = 2 * MIB  # ranges are made of these: the blocks that a cache keeps


class Tuning:
    """What was found for one source; its readers, one after another or at once, share it."""

    def __init__(self, read: Read) -> None:
        self._lock = threading.Lock()
        self._most = max(read.connections, read.most_connections)
        self._bound = read.limits.read_ahead_bytes
        self._range = read.range_bytes
        self._tunes = read.most_connections > 0
        self._first = read.connections
        self.connections: int = read.connections
        self.read_ahead: int = self._bound
        self._settled = self._most <= read.connections
        self._before: tuple[int, float] | None = None  # connections and rate before the last increase
        self._since: float | None = None
        self._bytes = 0
        self._waited = 0.0

    @property
    def range_bytes(self) -> int:
        """What is asked for in one request: so little that all connections have something to do."""
        if self.connections <= self._first:
            return self._range
        fair = self.read_ahead // self.connections // _PIECE * _PIECE
        return min(self._range, max(_PIECE, fair))

    def note(self, now: float, received: int, waited: float) -> None:
        """So many bytes came, after so many seconds of waiting for them."""
        if not self._tunes:
            return
        with self._lock:
            if self._since is None:
                self._since = now
            self._bytes += received
            self._waited += waited
            passed = now - self._since
            if passed >= _INTERVAL:
                self._decide(self._bytes / passed, self._waited / passed)
                self._since, self._bytes, self._waited = now, 0, 0.0

    def pause(self) -> None:
        """What follows does not belong to what came before: another epoch."""
        with self._lock:
            self._since, self._bytes, self._waited = None, 0, 0.0

    def _decide(self, rate: float, waiting: float) -> None:
        if self._before is not None:
            before, rate_before = self._before
            self._before = None
            if rate < rate_before * _FASTER:
                self.connections, self._settled = before, True
                return
        if waiting < _WAITING:
            return
        if not self._settled and self.connections < self._most:
            self._before = self.connections, rate
            self.connections = min(self._most, self.connections * 2)
