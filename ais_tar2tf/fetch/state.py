"""The state of a download, which the reader and the workers share: shards, range requests, and the read-ahead.

`DownloadState.lock` guards the state. The caller of a method that changes it holds the lock, unless the method says
otherwise. Other modules call methods of the state and read its objects, but assign to none of their fields. This
module does no I/O and decides nothing: `planner.py` decides what to request, `downloader.py` requests it, and
`fetcher.py` hands it to the reader.

A range request is in one of these states:

    state      meaning                                         next state: the method that enters it, and its caller
    ---------  ----------------------------------------------  -----------------------------------------------------
    PLANNED    in the queue; not yet requested from the store  IN_FLIGHT  `begin`: planner, for a worker or the reader
                                                               ABANDONED  `abandon_…`: planner; `leave_shard`: reader
    IN_FLIGHT  a worker or the reader downloads it; the        RECEIVED   `end`: downloader, when all bytes arrived
               reader may already consume its first blocks     FAILED     `end`: downloader, when no try is left
                                                               ABANDONED  as above
    RECEIVED   all bytes arrived; the reader has not consumed  DELIVERED  `next_request`: planner, when none is left
               all of its blocks                               ABANDONED  as above
    FAILED     the reader raises its error on reaching it      ABANDONED  as above
    DELIVERED  the reader consumed it; no longer in the queue  none
    ABANDONED  the reader left its shard or jumped over it;    none
               no longer in the queue; if a worker downloads
               it, the worker stops soon

The state of a shard has five parts. Each changes at most once, as follows:

    part       change                      the method that makes it, and its caller
    ---------  --------------------------  ------------------------------------------------------------------------
    identity   unanswered → answered       `note_identity`: planner, at each answer
    validator  strong → none               `note_validator`: downloader, before the first answer is used
    size       unknown → known             `note_size`: planner, at the first answer; an index may state it earlier
    plan       partly → fully planned      `plan`, `note_size`, `begin_jumping`, `abandon_shard`: planner;
                                           `end`: downloader, if the size stays unknown
    strategy   sequential → jumping        `begin_jumping`: planner, at a jump, or at the first answer if the reader
                                           jumped in the shard before
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from ais_tar2tf.base import forking
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.fetch.prefetch_windows import PredictedWindows
from ais_tar2tf.fetch.prefix import Prefix
from ais_tar2tf.fetch.range_requests import RangeRequest, RequestState, ShardDownload
from ais_tar2tf.fetch.ranges import BLOCK_BYTES, Block, ShardRange
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.stores import Identity

__all__ = ["DownloadState"]


class DownloadState:
    """The queue of range requests in delivery order, the reader's position in it, and the bound of the read-ahead."""

    def __init__(self, tuning: Tuning, max_read_ahead: int) -> None:
        self.lock: threading.Condition = forking.condition()
        self.is_closed: bool = False
        self.awaited: RangeRequest | None = None  # the request for which the reader waits; read without the lock
        self.requests: deque[RangeRequest] = deque()  # in delivery order; the reader consumes the first
        self.current: ShardDownload | None = None  # the shard that is read
        self.delivered: int = 0  # offset in the current shard; changed only by the reader's thread
        self.partly_planned: ShardDownload | None = None  # the shard of which the next range is to be planned
        self.last_lacks_validator: bool = False  # of the shard that was answered last
        self._tuning = tuning
        self._max_read_ahead = max(BLOCK_BYTES, max_read_ahead)
        self._waiting: deque[RangeRequest] = deque()  # the requests in `requests` that a worker may begin
        self._planned_bytes = 0  # over all shards
        self._passed_bytes = 0  # the part of the planned bytes that the reader consumed or left out
        self._last_window_bytes = 0  # of the previous shard; 0 if the reader did not jump in it

    # Questions.

    @property
    def read_ahead_bytes(self) -> int:
        """How far ahead of the reader bytes are received, as tuned, within the bound. It bounds each window, too."""
        return max(BLOCK_BYTES, min(self._max_read_ahead, self._tuning.read_ahead))

    @property
    def next_waiting(self) -> RangeRequest | None:
        """The earliest request that a worker may begin, whether or not the read-ahead has room for it."""
        return self._waiting[0] if self._waiting else None

    @property
    def next_window_bytes(self) -> int:
        """The size of the first prefetch window of the next shard; 0 if no jump is expected."""
        if self.current is not None and self.current.is_jumping:
            return self.current.window_bytes
        return self._last_window_bytes

    @property
    def may_plan_ahead(self) -> bool:
        """Whether the read-ahead has room for another range of a shard that is read sequentially."""
        if self._waiting or self._planned_bytes - self._passed_bytes >= self.read_ahead_bytes:
            return False
        if self.partly_planned is not None and self.partly_planned.size is None:
            return False
        jumping = self.current is not None and self.current.is_jumping
        # While the reader jumps, one shard after the current one is enough.
        return not (jumping and self.requests and self.requests[-1].shard is not self.current)

    def may_begin(self, request: RangeRequest) -> bool:
        """Return whether the request begins within the read-ahead."""
        return request.plan_offset - self._passed_bytes < self.read_ahead_bytes

    def has_room(self, request: RangeRequest, size: int) -> bool:
        """Return whether the read-ahead has room for `size` more bytes of the request."""
        ahead = request.plan_offset + request.received - self._passed_bytes
        return ahead <= 0 or ahead + size <= self.read_ahead_bytes

    def is_over(self, request: RangeRequest) -> bool:
        """Return whether no more bytes of the request are to be downloaded."""
        full = request.stop is not None and request.received >= request.size and request.shard.size is not None
        return self.is_closed or request.is_abandoned or full

    def contiguous_bytes(self, shard: ShardDownload) -> int:
        """Return how many bytes of the current shard the reader can consume before the first gap."""
        total, offset = 0, self.delivered
        for request in self.requests:
            if request.shard is not shard or request.consumed_to > offset:
                break
            total += sum(block.end - block.begin for block in request.blocks)
            offset = request.received_to
        return total

    # Planning.

    def plan(self, shard: ShardDownload, stop: int | None, *, may_be_combined: bool) -> None:
        """Append a request for the next range of a shard."""
        self.partly_planned = shard
        request = RangeRequest(shard, shard.planned_to, stop, self._planned_bytes, may_be_combined)
        self.requests.append(request)
        self._waiting.append(request)
        if shard.size is not None:  # otherwise the next range is known after the first answer
            self._note_planned(request, stop if stop is not None else shard.size)
        self.lock.notify_all()

    def plan_window(
        self, shard: ShardDownload, start: int, stop: int, *, may_be_combined: bool
    ) -> RangeRequest | None:
        """Insert a request for a prefetch window of the current shard; return None if its range is empty.

        Args:
            shard: The current shard.
            start: Offset of the window, which overlaps no other request.
            stop: Offset of its end.
            may_be_combined: Whether one store request may bring this range together with others.
        """
        assert shard.end is not None
        stop = min(stop, shard.end)
        if start >= stop:
            return None
        request = RangeRequest(shard, start, stop, self._passed_bytes, may_be_combined)
        for queue in (self.requests, self._waiting):
            earlier = takewhile(lambda each: each.shard is shard and each.start < start, queue)
            queue.insert(sum(1 for _ in earlier), request)
        self.lock.notify_all()
        return request

    def plan_for_reader(self, shard: ShardDownload, stop: int) -> RangeRequest:
        """Put a request for the reader's next bytes first. No worker begins it, only the reader itself."""
        request = RangeRequest(shard, self.delivered, stop, self._passed_bytes)
        self.requests.appendleft(request)
        shard.windows_since_jump += 1
        return request

    def begin(self, request: RangeRequest) -> None:
        """Note that a worker, or the reader, downloads a request from now on."""
        request.enter(RequestState.IN_FLIGHT)
        if request in self._waiting:
            self._waiting.remove(request)

    def _note_planned(self, request: RangeRequest, stop: int) -> None:
        shard = request.shard
        self._planned_bytes = request.plan_offset + (stop - request.start)
        shard.planned_to = stop
        if shard.end is not None and stop >= shard.end:
            self._finish_planning(shard)

    def _finish_planning(self, shard: ShardDownload) -> None:
        shard.is_fully_planned = True
        if self.partly_planned is shard:
            self.partly_planned = None

    # Jumping.

    def expect_jumps(self, max_read_ahead: int, shard: ShardDownload, window_bytes: int) -> None:
        """Lower the bound of the read-ahead from now on, and set the size of the first prefetch window."""
        self._max_read_ahead = min(self._max_read_ahead, max_read_ahead)
        shard.window_bytes = window_bytes

    def begin_jumping(self, shard: ShardDownload, *, windows: int = 0) -> None:
        """Plan a shard in prefetch windows from now on, of which `windows` are planned already."""
        shard.is_jumping = True
        shard.windows_since_jump = windows
        self._finish_planning(shard)
        if shard.wanted.begins is not None:
            shard.predicted = PredictedWindows(shard.wanted.begins())

    def jump_to(self, shard: ShardDownload, target: int, window_bytes: int) -> None:
        """Move the reader, and set the size of the prefetch window at its new position."""
        shard.window_bytes, shard.windows_since_jump, shard.jump_target = window_bytes, 0, target
        self.delivered = target

    # A request in flight. The thread that downloads it calls these three methods without the lock.

    def note_blocked(self, request: RangeRequest, seconds: float) -> None:
        """Note for how long the read-ahead had no room for the request's next block."""
        request.blocked_seconds += seconds

    def note_retry(self, request: RangeRequest, error: TransportError) -> None:
        """Note that a try failed with this error, and that another try follows."""
        request.last_error = error

    def restart_hash(self, request: RangeRequest, prefix: Prefix) -> None:
        """Continue the request's hash from `prefix`, which has hashed the same number of bytes of a new body."""
        request.prefix = prefix

    # Answers and bytes, from the threads that download.

    def note_validator(self, shard: ShardDownload, found: Identity) -> None:
        """Note whether the first answer states a strong validator."""
        if not shard.is_answered and not shard.identity.completed_by(found).is_strong:
            shard.lacks_validator = True

    def note_identity(self, request: RangeRequest, found: Identity) -> bool:
        """Note the identity that an answer states; return whether the size of the shard is still to be noted."""
        shard = request.shard
        shard.is_answered = True
        if shard.size is not None or request.is_abandoned:
            return False
        shard.identity = shard.identity.completed_by(found)
        self.last_lacks_validator = shard.lacks_validator
        return True

    def note_size(self, request: RangeRequest, size: int | None, answer_stop: int | None) -> None:
        """Note the size of a shard, and how much of the shard its first answer brings.

        Args:
            request: The request that was answered.
            size: Of the shard; None if its store does not state it.
            answer_stop: Offset of the answer's end; None if it is the shard's end, or not stated.
        """
        shard = request.shard
        shard.size = size
        end = shard.end
        if size is None or end is None:
            request.stop = shard.wanted.stop  # this answer brings the whole range
            return
        answered = size if answer_stop is None else answer_stop
        shard.honours_ranges = answered < size and not shard.lacks_validator
        if request.stop is None or request.stop > end or answered > request.stop:
            request.stop = end  # this answer brings all the rest, perhaps because the store ignores ranges
        self._note_planned(request, request.stop)

    def add_block(self, request: RangeRequest, buffer: memoryview, begin: int, end: int) -> None:
        """Append a part of a buffer as a block. The reader gets the bytes once their content is proved."""
        prefix = request.prefix
        request.last_error = None
        request.received += end - begin
        request.unverified.append(Block(buffer, begin, end, "" if prefix is None else prefix.text))
        if not request.awaits_proof:
            request.blocks.extend(request.unverified)
            request.unverified.clear()
        if request.stop is None and not request.is_abandoned:
            self._note_open_end(request)
        self.lock.notify_all()

    def end(self, request: RangeRequest, error: StoreError | None = None) -> None:
        """Note that a request in flight is complete, or failed with an error."""
        if request.state is RequestState.IN_FLIGHT:
            request.error = error
            request.enter(RequestState.RECEIVED if error is None else RequestState.FAILED)
            if request.shard.size is None:
                self._finish_planning(request.shard)
                self._note_open_end(request)
        self.lock.notify_all()

    def _note_open_end(self, request: RangeRequest) -> None:
        self._planned_bytes = max(self._planned_bytes, request.plan_offset + request.received)

    # The reader's way through the queue.

    def enter_shard(self) -> ShardRange:
        """Make the shard of the first request the current shard."""
        self.current = shard = self.requests[0].shard
        self.delivered = shard.jump_target = shard.wanted.start
        return shard.wanted

    def leave_shard(self) -> list[RangeRequest]:
        """Abandon the requests of the current shard, if there is one; return them."""
        shard = self.current
        if shard is None:
            return []
        abandoned = self.abandon_shard(shard)
        self._last_window_bytes = shard.window_bytes if shard.jump_target != shard.wanted.start else 0
        self.current = None
        return abandoned

    def next_request(self) -> RangeRequest | None:
        """Return the first request of the current shard that is not delivered; None if none is planned."""
        while self.requests and self.requests[0].shard is self.current:
            request = self.requests[0]
            if request.state is not RequestState.RECEIVED or request.blocks:
                return request
            self.requests.popleft()
            request.enter(RequestState.DELIVERED)
            self.lock.notify_all()
        return None

    def consume_block(self, request: RangeRequest) -> Block | None:
        """Remove and return a request's first block, from the reader's position on; None if all of it was skipped."""
        skipped = self.delivered - request.consumed_to
        block = request.blocks.popleft()
        request.consumed += block.end - block.begin
        if not request.shard.is_jumping:
            self._passed_bytes += block.end - block.begin
        self.lock.notify_all()
        request.shard.prefix_hash = block.prefix_hash
        begin = block.begin + skipped
        self.delivered += max(0, block.end - begin)
        return Block(block.buffer, begin, block.end) if begin < block.end else None

    def abandon_before(self, shard: ShardDownload, target: int) -> list[RangeRequest]:
        """Abandon the first requests of the current shard that end at `target` or earlier; return them."""
        return self._abandon_while(
            lambda request: request.shard is shard and request.stop is not None and request.stop <= target
        )

    def abandon_shard(self, shard: ShardDownload) -> list[RangeRequest]:
        """Abandon all requests of the current shard; return them."""
        abandoned = self._abandon_while(lambda request: request.shard is shard)
        self._finish_planning(shard)
        self._passed_bytes = self.requests[0].plan_offset if self.requests else self._planned_bytes
        self.lock.notify_all()
        return abandoned

    def _abandon_while(self, condition: Callable[[RangeRequest], bool]) -> list[RangeRequest]:
        abandoned: list[RangeRequest] = []
        while self.requests and condition(self.requests[0]):
            request = self.requests.popleft()
            request.enter(RequestState.ABANDONED)
            if request in self._waiting:
                self._waiting.remove(request)
            abandoned.append(request)
        return abandoned

    def wait_for_change(self, request: RangeRequest) -> None:
        """Wait until the state changes. Meanwhile the thread that downloads `request` adds small blocks, too."""
        self.awaited = request
        self.lock.wait()
        self.awaited = None

    # The end.

    def close(self) -> None:
        """Let every thread that uses the state end."""
        self.is_closed = True
        self.lock.notify_all()

    def close_in_child(self) -> None:
        """Close the state in a forked child, which has no other thread. The caller does not hold the lock."""
        self.is_closed = True

    def clear(self) -> None:
        """Free all blocks."""
        self.requests.clear()
        self._waiting.clear()
