"""What reading chooses for itself, from what the first seconds show and within bounds. It decides; it does no I/O.

    connections   twice as many while the reader mostly waits for bytes; what brings none faster is taken back
    read-ahead    what comes while an answer is waited for, several times over, and what evens out both sides
    chunk         what comes in a moment, so that a slow link's records don't wait for each other
    parallel      calls of a mapping: twice as many while most of their time they wait; see `Climb`, `calls_at_once`

A value that somebody gave stays as it is. Nothing of this changes what is read, or in which order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ais_tar2tf import forking
from ais_tar2tf.account import Choice
from ais_tar2tf.options import KIB, MIB, Limits, Read

__all__ = ["Climb", "Measured", "Tuning", "calls_at_once", "chunk_for", "read_ahead_for"]

INTERVAL = 0.5  # seconds of measurement before each decision: some hundred round trips

_WAITING = 0.5  # of that time; below this, waiting is not what holds it up
_FASTER = 1.15  # at least, for more of them to be worth their cost
_PIECE = 2 * MIB  # ranges are made of these: the blocks that a cache keeps
_EACH = 2 * _PIECE  # of the read-ahead for one connection: a block that comes, and one that is read
_ROUND_TRIPS = 8  # of bytes that are ahead: one in so many of a range's seconds may go by in waiting for its answer
_UNEVEN = 0.1  # seconds of bytes that are ahead, for neither the link nor a training step is even
_MOMENT = 0.05  # seconds of bytes in a chunk: nobody sees a step that begins so much later
_LEAST_CHUNK = 256 * KIB  # below this, the call for a chunk costs more than splitting it
_CALLS = 16  # of a mapping: with two, threads that wake each other cost more than a small mapping takes
_CALLS_BYTES = 64 * MIB  # of the records in all of them: a quarter of what a dataset may take
_RECENT = 0.25  # the weight of the latest answer among those before it


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A stretch of reading."""

    rate: float  # bytes a second that the reader took
    waiting: float  # the share of the time in which it waited for them; in the rest it parsed, or nobody wanted any
    first_byte: float = 0.0  # seconds from a request to its answer

    def __str__(self) -> str:
        waited = f"waited for bytes {self.waiting:.0%} of the time"
        return f"{self.rate / 1e6:,.1f} MB/s, {waited}, answers after {self.first_byte * 1e3:,.0f} ms"


def read_ahead_for(measured: Measured, connections: int, bound: int) -> int:
    """Bytes that are worth having under way or waiting.

    >>> slow = Measured(rate=2e6, waiting=0.9, first_byte=0.05)
    >>> far = Measured(rate=80e6, waiting=0.9, first_byte=0.05)
    >>> [read_ahead_for(each, 2, 32 * MIB) // MIB for each in (slow, far)]
    [8, 32]
    """
    wanted = measured.rate * (_ROUND_TRIPS * measured.first_byte + _UNEVEN)
    return min(bound, _doubled(_EACH * connections, wanted))


def chunk_for(measured: Measured, bound: int) -> int:
    """Bytes of records to hand over at once.

    >>> [chunk_for(Measured(rate=rate, waiting=0.5), 2 * MIB) // KIB for rate in (1e6, 15e6, 500e6)]
    [256, 1024, 2048]
    """
    return min(bound, _doubled(_LEAST_CHUNK, measured.rate * _MOMENT))


def calls_at_once(record_bytes: int, cores: int) -> int:
    """How many calls of a mapping may be under way, where nobody said; at least as many as there are cores.

    >>> [calls_at_once(size, 4) for size in (0, 8 * MIB, 200 * MIB)]
    [16, 8, 4]
    """
    within = _CALLS_BYTES // max(1, record_bytes)
    return max(min(_CALLS, cores), min(_CALLS, within))


def _doubled(least: int, wanted: float) -> int:
    """`least`, as many times doubled as it takes."""
    while least < wanted:
        least *= 2
    return least


class Climb:
    """A number that doubles while what it limits mostly waits, and goes back where that brought nothing."""

    def __init__(self, first: int, most: int) -> None:
        self.value: int = first
        self._most = most
        self._settled = most <= first
        self._before: tuple[int, float] | None = None  # the number and the rate before the last doubling

    def note(self, rate: float, waiting: float) -> None:
        """What the last stretch came to, of whatever is counted a second."""
        if self._before is not None:
            before, rate_before = self._before
            self._before = None
            if rate < rate_before * _FASTER:
                self.value, self._settled = before, True
                return
        if waiting >= _WAITING and not self._settled and self.value < self._most:
            self._before = self.value, rate
            self.value = min(self._most, self.value * 2)


class Tuning:
    """What was found for one source; its readers, one after another or at once, share it.

    With `sharing`, so many readers at once tell it what they see, and each does what it says.
    """

    def __init__(self, read: Read, *, sharing: int = 1, given: Limits | None = None) -> None:
        self._lock = forking.lock()
        self._read = read
        self._sharing = sharing
        self._given = given or read.limits  # before several shared them
        self._among: dict[tuple[Read, int], Tuning] = {}
        self._climb = Climb(read.connections, read.most_connections)
        self.read_ahead: int = read.limits.read_ahead_bytes
        self.chunk_bytes: int = read.limits.chunk_bytes
        self._first_byte = 0.0
        self._since: float | None = None
        self._bytes = 0
        self._waited = 0.0
        self._said: dict[str, str] = {}

    @property
    def connections(self) -> int:
        return self._climb.value

    @property
    def range_bytes(self) -> int:
        """What is asked for in one request: so little that all connections have something to do."""
        if self.connections <= self._read.connections:
            return self._read.range_bytes
        fair = self.read_ahead // self.connections // _PIECE * _PIECE
        return min(self._read.range_bytes, max(_PIECE, fair))

    def among(self, read: Read, readers: int) -> Tuning:
        """For several readers at once, each of which reads as `read` says."""
        with self._lock:
            key = read, readers
            if key not in self._among:
                self._among[key] = Tuning(read, sharing=readers, given=self._given)
            return self._among[key]

    def answered(self, seconds: float) -> None:
        """So long after a request its answer began."""
        with self._lock:
            weight = _RECENT if self._first_byte else 1.0
            self._first_byte += weight * (seconds - self._first_byte)

    def note(self, now: float, received: int, waited: float) -> dict[str, Choice]:
        """So many bytes came, after so many seconds of waiting for them; what is chosen anew then."""
        with self._lock:
            if self._since is None:
                self._since = now
            self._bytes += received
            self._waited += waited
            passed = now - self._since
            if passed < INTERVAL:
                return {}
            rate, waiting = self._bytes / passed, self._waited / passed
            self._since, self._bytes, self._waited = now, 0, 0.0
            return self._decided(Measured(rate=rate, waiting=waiting, first_byte=self._first_byte))

    def pause(self) -> None:
        """What follows does not belong to what came before: another epoch."""
        with self._lock:
            self._since, self._bytes, self._waited = None, 0, 0.0

    def _decided(self, measured: Measured) -> dict[str, Choice]:
        limits, said = self._read.limits, dict[str, str]()
        if self._read.most_connections > 0:
            self._climb.note(measured.rate, measured.waiting)
            said["connections"] = f"{self.connections}"
        if self._given.read_ahead_bytes == Limits.read_ahead_bytes:
            each = replace(measured, rate=measured.rate / self._sharing)
            self.read_ahead = read_ahead_for(each, self.connections, limits.read_ahead_bytes)
            said["read-ahead"] = f"{self.read_ahead * self._sharing / MIB:g} MiB"
        if self._given.chunk_bytes == Limits.chunk_bytes:
            self.chunk_bytes = chunk_for(measured, limits.chunk_bytes)
            said["chunk"] = f"{self.chunk_bytes // KIB:,} KiB"
        new = {name: Choice(value, str(measured)) for name, value in said.items() if value != self._said.get(name)}
        self._said = said
        return new
