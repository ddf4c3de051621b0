"""The objects that describe a download: a `ShardDownload` for each shard, a `RangeRequest` for each range.

Only `state.py` changes these objects. Its docstring has the tables of their states. This module must not do I/O.

A range is *planned* when a `RangeRequest` for it is in the queue of `state.py`. A reader *jumps* when it skips bytes
of a shard. In a shard with jumps, *prefetch windows* are planned: short ranges where the reader is expected to read
next. A *strong validator* is a version, ETag or checksum that changes whenever the object changes.
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


# For each state, the states that may follow.
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
    identity: Identity  # the identity that a position or an index states, completed by the first answer
    size: int | None  # bytes of the whole shard; None if the size is unknown
    # Whether the store states no strong validator. If so, one body must bring all wanted bytes, because two bodies
    # might be of two versions of the shard.
    lacks_validator: bool
    window_bytes: int = 0  # size of the next prefetch window; 0 if no jump is expected
    is_answered: bool = False  # the store has answered a request for this shard
    planned_to: int = 0  # offset up to which ranges are planned
    is_fully_planned: bool = False  # no further range will be planned, except prefetch windows
    honours_ranges: bool = False  # the first answer ended before the end of the shard, as requested
    prefix_hash: str = ""  # hash of the shard to the end of the last delivered block; "" with a strong validator
    is_jumping: bool = False  # the reader jumps in this shard, so only prefetch windows are planned
    windows_since_jump: int = 0  # number of prefetch windows planned at the reader's position since the last jump
    jump_target: int = 0  # offset to which the last jump led, or at which reading began
    # The prefetch windows around the next records. None if the reader does not jump, or no index lists the records.
    predicted: PredictedWindows | None = None

    @property
    def is_bound(self) -> bool:
        """Whether each answer must state the strong validator in `identity`."""
        return (self.is_answered or self.wanted.bound) and not self.lacks_validator

    @property
    def body_start(self) -> int:
        """The offset at which the single body of a shard without a strong validator begins.

        If `wanted` states a hash of the bytes before its start, the body begins at offset 0, because these bytes must
        be hashed again.
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
    stop: int | None  # None: the range ends with the shard, whose size is not known yet
    # The number of bytes, in all shards, that were planned before this request. The read-ahead compares this number
    # with the number of bytes that the reader has passed. For a prefetch window, it is the number of bytes that the
    # reader has passed, so that the request can begin at once.
    plan_offset: int
    may_be_combined: bool = False  # one store request may bring this range together with other ranges
    state: RequestState = RequestState.PLANNED
    error: StoreError | None = None  # the error that made the state FAILED; None without such an error
    received: int = 0  # bytes that arrived
    consumed: int = 0  # bytes that the reader consumed
    blocks: deque[Block] = field(default_factory=deque[Block])  # blocks that the reader may consume next
    unverified: list[Block] = field(default_factory=list[Block])  # blocks that later bytes must prove first
    prefix: Prefix | None = None  # hash of the received bytes; None if the store states a strong validator
    blocked_seconds: float = 0.0  # seconds that the download waited because the read-ahead had no room
    last_error: TransportError | None = None  # the error of the last failed try; None once a later try receives bytes

    @property
    def size(self) -> int:
        """The number of bytes in the range; 0 while its end is unknown."""
        return 0 if self.stop is None else self.stop - self.start

    @property
    def missing(self) -> int | None:
        """The number of bytes of the range that were not received; None while the end of the range is unknown."""
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
        """Whether the request is in the queue, and no thread has begun to download it."""
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
        """Change the state, as the table in `state.py` allows. Only `state.py` calls this method."""
        assert state in _NEXT[self.state], f"{self.state.name} → {state.name}"
        self.state = state
