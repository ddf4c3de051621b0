"""Chooses four numbers from measurements, within bounds.

    connections   one if the first answer comes within 10 ms, otherwise two; doubled while the reader mostly waits for
                  bytes; halved again if reading did not become faster
    read-ahead    the bytes that are read in 8 round trips, and in 0.1 s more, since links and readers are uneven
    chunk         the bytes that are read in 50 ms, so that over a slow link, no record waits long for a full chunk
    parallel      simultaneous calls of a mapping: doubled while the calls mostly wait; `Tuning` does not choose it

This module must not do I/O, and must not change a number that the user sets. The choices must not change which
records are read, or their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ais_tar2tf.base import forking
from ais_tar2tf.base.monitoring.stats import AutoChoice
from ais_tar2tf.options import KIB, MIB, Limits, Read

__all__ = ["Climb", "ReadingRate", "Tuning", "calls_at_once", "chunk_for", "read_ahead_for"]

INTERVAL = 0.5  # seconds of measurement before each decision: the time of some hundred round trips

_WAITING = 0.5  # fraction of the interval; if less time is spent waiting, more connections or calls would not help
_MIN_GAIN = 1.15  # doubling a number is worth its cost if the rate grows at least by this factor
_UNIT = 2 * MIB  # ranges are multiples of this number of bytes, the size of a cache block
_PER_CONNECTION = 2 * _UNIT  # bytes of read-ahead for a connection: a block being received, and one being read
_ROUND_TRIPS = 8  # the read-ahead lasts for 8 round trips, of which a connection waits one for its answer
_UNEVEN = 0.1  # seconds of reading that the read-ahead also holds, since links and training steps are uneven
_RARELY = 0.05  # fraction of the interval; a reader that waits less, on a near link, needs only a small read-ahead
_NEAR = 0.01  # seconds to the first byte, up to which a link is near: one connection usually fills it
_CHUNK_SECONDS = 0.05  # a chunk holds the bytes read in this time; nobody notices that a step begins 50 ms later
_MIN_CHUNK = 256 * KIB  # bytes; a call for a smaller chunk costs more than it saves
_CALLS = 16  # calls of a mapping at once; with only two, waking threads takes longer than a small mapping
_CALLS_BYTES = 64 * MIB  # bytes of the records in all calls together; a quarter of the memory that a dataset may use
_RECENT = 0.25  # the weight of the latest answer in the moving average of the time to the first byte


@dataclass(frozen=True, kw_only=True)
class ReadingRate:
    """The measurements of an interval of reading."""

    rate: float  # bytes a second that the reader consumed
    waiting: float  # fraction of the interval that the reader spent waiting for bytes
    first_byte: float = 0.0  # seconds from a request to the first byte of its answer: a moving average

    def __str__(self) -> str:
        waited = f"waited for bytes {self.waiting:.0%} of the time"
        return f"{self.rate / 1e6:,.1f} MB/s, {waited}, answers after {self.first_byte * 1e3:,.0f} ms"


def read_ahead_for(measured: ReadingRate, connections: int, bound: int) -> int:
    """Return how many bytes to request or receive ahead of the reader.

    >>> slow = ReadingRate(rate=2e6, waiting=0.9, first_byte=0.05)
    >>> far = ReadingRate(rate=80e6, waiting=0.9, first_byte=0.05)
    >>> [read_ahead_for(each, 2, 32 * MIB) // MIB for each in (slow, far)]
    [8, 32]
    >>> fast = ReadingRate(rate=500e6, waiting=0.01, first_byte=0.001)
    >>> read_ahead_for(fast, 1, 32 * MIB) // MIB
    4
    """
    if measured.waiting < _RARELY and measured.first_byte < _NEAR:
        return min(bound, _PER_CONNECTION * connections)  # faster: the processor's caches still hold the bytes
    wanted = measured.rate * (_ROUND_TRIPS * measured.first_byte + _UNEVEN)
    return min(bound, _doubled(_PER_CONNECTION * connections, wanted))


def chunk_for(measured: ReadingRate, bound: int) -> int:
    """Return how many bytes of records to pass to TensorFlow at once.

    >>> [chunk_for(ReadingRate(rate=rate, waiting=0.5), 2 * MIB) // KIB for rate in (1e6, 15e6, 500e6)]
    [256, 1024, 2048]
    """
    return min(bound, _doubled(_MIN_CHUNK, measured.rate * _CHUNK_SECONDS))


def calls_at_once(record_bytes: int, cores: int) -> int:
    """Return how many calls of a mapping may run at once by default.

    These are 16 calls, or fewer if the records in all calls would take more than `_CALLS_BYTES`. As long as there are
    at most 16 cores, there is at least one call for each core.

    >>> [calls_at_once(size, 4) for size in (0, 8 * MIB, 200 * MIB)]
    [16, 8, 4]
    """
    within = _CALLS_BYTES // max(1, record_bytes)
    return max(min(_CALLS, cores), min(_CALLS, within))


def _doubled(number: int, wanted: float) -> int:
    """Return `number`, doubled as often as needed to reach `wanted`."""
    while number < wanted:
        number *= 2
    return number


class Climb:
    """A number of connections or calls. The number doubles while most of the time is spent waiting.

    If the rate has grown too little after a doubling, the number returns to its previous value and stays there.
    """

    def __init__(self, first: int, most: int) -> None:
        self.value: int = first
        self._most = most
        self._settled = most <= first
        self._before: tuple[int, float] | None = None  # the number and the rate before the last doubling

    def note(self, rate: float, waiting: float) -> None:
        """Choose the next value.

        Args:
            rate: The rate in the last interval, in any unit.
            waiting: The fraction of the last interval that was spent waiting.
        """
        if self._before is not None:
            before, rate_before = self._before
            self._before = None
            if rate < rate_before * _MIN_GAIN:
                self.value, self._settled = before, True
                return
        if waiting >= _WAITING and not self._settled and self.value < self._most:
            self._before = self.value, rate
            self.value = min(self._most, self.value * 2)


class Tuning:
    """The connections, read-ahead and chunk chosen for one source. All its readers share them. Thread-safe.

    Args:
        read: The options of reading; their values bound the choices.
        sharing: How many readers share these numbers at once. Each of them reports its measurements.
        given: The limits that the user set, before they were divided among the readers. Read-ahead and chunk are
            each chosen only if the user's limit has the default value. Default: `read.limits`.
    """

    def __init__(self, read: Read, *, sharing: int = 1, given: Limits | None = None) -> None:
        self._lock = forking.lock()
        self._read = read
        self._sharing = sharing
        self._given = given or read.limits
        self._shared: dict[tuple[Read, int], Tuning] = {}
        self._climb = Climb(1 if read.most_connections else read.connections, read.most_connections)
        self.read_ahead: int = read.limits.read_ahead_bytes
        self.chunk_bytes: int = read.limits.chunk_bytes
        self._first_byte = 0.0
        self._since: float | None = None
        self._bytes = 0
        self._waited = 0.0
        self._chosen: dict[str, str] = {}

    @property
    def connections(self) -> int:
        """The number of connections."""
        return self._climb.value

    @property
    def range_bytes(self) -> int:
        """The number of bytes in a range request: small enough that the read-ahead keeps all connections busy."""
        if self.connections <= self._read.connections:
            return self._read.range_bytes
        fair = self.read_ahead // self.connections // _UNIT * _UNIT
        return min(self._read.range_bytes, max(_UNIT, fair))

    def among(self, read: Read, readers: int) -> Tuning:
        """Return the tuning that `readers` concurrent readers share, each with the options `read`."""
        with self._lock:
            key = read, readers
            if key not in self._shared:
                self._shared[key] = Tuning(read, sharing=readers, given=self._given)
            return self._shared[key]

    def note_answer(self, seconds: float) -> None:
        """Note how many seconds passed between a request and the beginning of its answer."""
        with self._lock:
            is_first = not self._first_byte
            self._first_byte += (1.0 if is_first else _RECENT) * (seconds - self._first_byte)
            if is_first and seconds >= _NEAR:
                self._climb = Climb(self._read.connections, self._read.most_connections)

    def note(self, now: float, received: int, waited: float) -> dict[str, AutoChoice]:
        """Note bytes that were received up to the time `now`; return the choices that change.

        Args:
            now: The time in seconds.
            received: The number of bytes received since the previous call.
            waited: How many seconds the reader waited for bytes since the previous call.
        """
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
            return self._choose(ReadingRate(rate=rate, waiting=waiting, first_byte=self._first_byte))

    def pause(self) -> None:
        """Begin a new interval, because the time since the last call of `note` was not spent reading."""
        with self._lock:
            self._since, self._bytes, self._waited = None, 0, 0.0

    def _choose(self, measured: ReadingRate) -> dict[str, AutoChoice]:
        limits, chosen = self._read.limits, dict[str, str]()
        if self._read.most_connections > 0:
            self._climb.note(measured.rate, measured.waiting)
            chosen["connections"] = f"{self.connections}"
        if self._given.read_ahead_bytes == Limits.read_ahead_bytes:
            each = replace(measured, rate=measured.rate / self._sharing)
            self.read_ahead = read_ahead_for(each, self.connections, limits.read_ahead_bytes)
            chosen["read-ahead"] = f"{self.read_ahead * self._sharing / MIB:g} MiB"
        if self._given.chunk_bytes == Limits.chunk_bytes:
            self.chunk_bytes = chunk_for(measured, limits.chunk_bytes)
            chosen["chunk"] = f"{self.chunk_bytes // KIB:,} KiB"
        new = {
            name: AutoChoice(value, str(measured))
            for name, value in chosen.items()
            if value != self._chosen.get(name)
        }
        self._chosen = chosen
        return new
