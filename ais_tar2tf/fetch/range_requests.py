"""The objects that describe a download: a `ShardDownload` for each shard, a `RangeRequest` for each range. No I/O.

Only `state.py` changes these objects. Its docstring has the tables of their states.

A range is *planned* when a `RangeRequest` for it is in the queue. A reader *jumps* when it skips bytes of a shard. In
a shard with jumps, *prefetch windows* are planned: short ranges where the reader is expected to read next. A *strong
validator* is a version, ETag or checksum that changes whenever the object changes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.fetch.prefetch_windows import PredictedWindows
from ais_tar2tf.fetch.prefix import Prefix
from ais_tar2tf.fetch.ranges import Block, ShardRange
from ais_tar2tf.stores import Identity

__all__ = ["RangeRequest", "RequestState", "ShardDownload"]


class RequestState(Enum):
    """The state of a range request; see the table in `state.py`."""

    PLANNED = auto()
    IN_FLIGHT = auto()
    RECEIVED = auto()
    FAILED = auto()
    DELIVERED = auto()
    ABANDONED = auto()


_NEXT: dict[RequestState, frozenset[RequestState]] = {
    RequestState.PLANNED: frozenset({RequestState.IN_FLIGHT, RequestState.ABANDONED}),
    RequestState.IN_FLIGHT: frozenset({RequestState.RECEIVED, RequestState.FAILED, RequestState.ABANDONED}),
    RequestState.RECEIVED: frozenset({RequestState.DELIVERED, RequestState.ABANDONED}),
    RequestState.FAILED: frozenset({RequestState.ABANDONED}),
    RequestState.DELIVERED: frozenset(),
    RequestState.ABANDONED: frozenset(),
}


@dataclass(slots=True, eq=False)
class ShardDownload:
    """One shard while it is downloaded: its identity, its size, and how far its ranges are planned."""

    wanted: ShardRange
    url: str  # for errors
    identity: Identity
    size: int | None
    lacks_validator: bool  # the store states no strong validator: one body brings the whole shard
    window_bytes: int = 0  # size of the next prefetch window; 0 if no jump is expected
    is_answered: bool = False
    planned_to: int = 0  # offset
    is_fully_planned: bool = False  # no further range will be planned, except prefetch windows
    honours_ranges: bool = False  # the store answered a range request with less than the whole shard
    prefix_hash: str = ""  # of the delivered bytes, if the shard lacks a validator
    is_jumping: bool = False  # planned in prefetch windows, because the reader jumps over the bytes between them
    windows_since_jump: int = 0
    jump_target: int = 0  # offset to which the last jump led, or at which reading began
    predicted: PredictedWindows | None = None

    @property
    def is_bound(self) -> bool:
        """Whether an answer must state the same strong validator as before."""
        return (self.is_answered or self.wanted.bound) and not self.lacks_validator

    @property
    def body_start(self) -> int:
        """The offset at which the single body of a shard without a strong validator begins.

        It is 0 if the position to read from states a hash of the bytes before it, because the hash must be compared.
        """
        return 0 if self.wanted.identity.fingerprint else self.wanted.start

    @property
    def end(self) -> int | None:
        """The offset at which reading ends; None while the size is unknown."""
        if self.size is None or self.wanted.stop is None:
            return self.size
        return min(self.size, self.wanted.stop)


@dataclass(slots=True, eq=False)
class RangeRequest:
    """The request for a range of one shard, and the received blocks of this range."""

    shard: ShardDownload
    start: int
    stop: int | None  # None: the end of the shard, which is unknown
    plan_offset: int  # bytes of all shards that were planned before this request; the read-ahead counts planned bytes
    may_be_combined: bool = False  # one store request may bring this range together with others
    state: RequestState = RequestState.PLANNED
    error: StoreError | None = None  # why it FAILED
    received: int = 0  # bytes
    consumed: int = 0  # bytes that the reader consumed
    blocks: deque[Block] = field(default_factory=deque[Block])  # received and not consumed
    unverified: list[Block] = field(default_factory=list[Block])  # received; later bytes must prove their content
    prefix: Prefix | None = None  # hash of the received bytes; None if the store states a strong validator
    blocked_seconds: float = 0.0  # during which the read-ahead had no room for the next block
    last_error: TransportError | None = None  # of the last try, while another try follows

    @property
    def size(self) -> int:
        """The number of bytes in the range; 0 while its end is unknown."""
        return 0 if self.stop is None else self.stop - self.start

    @property
    def missing(self) -> int | None:
        """The number of bytes that were not received; None while the end is unknown."""
        return None if self.stop is None else self.stop - self.start - self.received

    @property
    def received_to(self) -> int:
        """The offset of the next byte to be received."""
        return self.start + self.received

    @property
    def consumed_to(self) -> int:
        """The offset of the next byte to be consumed by the reader."""
        return self.start + self.consumed

    @property
    def is_planned(self) -> bool:
        """Whether no thread has begun to download the request."""
        return self.state is RequestState.PLANNED

    @property
    def is_abandoned(self) -> bool:
        """Whether the reader no longer needs the request."""
        return self.state is RequestState.ABANDONED

    @property
    def awaits_proof(self) -> bool:
        """Whether the received blocks are held back until later bytes prove their content."""
        return self.prefix is not None and self.prefix.is_pending

    def enter(self, state: RequestState) -> None:
        """Change the state, as the table in `state.py` allows. Only that module calls this method."""
        assert state in _NEXT[self.state], f"{self.state.name} → {state.name}"
        self.state = state
