"""Decides which ranges of shards are requested, in which order, and how far ahead of the reader.

A shard is planned by one of two strategies: in consecutive ranges (`sequential.py`), or, once the reader jumps in it,
in prefetch windows (`jumping.py`).

No I/O, no threads. Callers hold the lock of the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.errors import StoreError
from ais_tar2tf.fetch.jumping import JumpingPlan
from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.ranges import ShardRange
from ais_tar2tf.fetch.sequential import COMBINED_BYTES, SequentialPlan
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Body, MultiRange, Store

__all__ = ["Planner"]


class Planner:
    """Fills the queue of range requests in the state with ranges of `shards`."""

    def __init__(
        self, state: DownloadState, store: Store, shards: Iterator[ShardRange], read: Read, tuning: Tuning
    ) -> None:
        self._state = state
        self._store = store
        self._read = read
        self._sequential = SequentialPlan(state, store, shards, read, tuning)
        self._jumping = JumpingPlan(state)

    # Calls of the reader.

    def next_shard(self) -> ShardRange | None:
        """Go to the next shard; return None after the last.

        Raises:
            Exception: Whatever the iterator of shards raised in place of the shard.
        """
        while not self._state.requests:
            if not self._sequential.plan_next():
                if self._sequential.failure is not None:
                    raise self._sequential.failure
                return None
        return self._state.enter_shard()

    def next_request(self) -> RangeRequest | None:
        """Return the request for the reader's next bytes, planning it if necessary; None at the end of the shard."""
        shard = self._state.current
        while True:
            request = self._state.next_request()
            if shard is None:
                return None
            if shard.is_jumping and (request is None or request.start > self._state.delivered):
                is_at_end = shard.end is not None and self._state.delivered >= shard.end
                return None if is_at_end else self._jumping.plan_here(shard, request)
            if request is not None or shard.is_fully_planned or not self._sequential.plan_next():
                return request

    def jump(self, count: int) -> tuple[int, list[RangeRequest]]:
        """Jump over `count` bytes if that is worthwhile; return how many, and the requests that this abandons."""
        shard, shortest = self._state.current, self._read.jump_bytes
        if shard is None or not shard.honours_ranges or not shortest:
            return 0, []
        if count - self._state.contiguous_bytes(shard) < shortest:
            return 0, []
        assert shard.end is not None
        count = min(count, shard.end - self._state.delivered)
        return count, self._jumping.jump(shard, count)

    # Calls of the threads that download.

    def claim(self) -> list[RangeRequest]:
        """Begin the earliest planned request, if the read-ahead has room, and the requests to combine with it."""
        if self._state.next_waiting is None:
            self._sequential.fill()
        request = self._state.next_waiting
        if request is None or not self._state.may_begin(request):
            return []
        requests = self.begin(request)
        self._sequential.fill()  # for the next worker
        return requests

    def begin(self, request: RangeRequest) -> list[RangeRequest]:
        """Begin a request, and the following requests that the store can answer together with it."""
        self._state.begin(request)
        requests = [request]
        if not isinstance(self._store, MultiRange) or not request.may_be_combined:
            return requests
        size = request.size
        while len(requests) < self._store.ranges_at_once:
            if self._state.next_waiting is None:
                self._sequential.plan_ahead()
            following = self._state.next_waiting
            if following is None or not following.may_be_combined:
                break
            size += following.size
            other_object = following.shard is not request.shard
            if size > COMBINED_BYTES or (other_object and not self._store.across_objects):
                break
            self._state.begin(following)
            requests.append(following)
        return requests

    def note_answer(self, request: RangeRequest, body: Body) -> None:
        """Plan the rest of a shard after its first answer, which states its size and whether ranges are honoured."""
        if not self._state.note_identity(request, body.info.identity):
            return
        self._state.note_size(request, self._stated_size(request, body), body.stop)
        shard = request.shard
        if shard.size is None:
            return
        if shard.window_bytes and not shard.is_fully_planned and not shard.lacks_validator:
            self._state.begin_jumping(shard, windows=1)
        self._sequential.fill()

    def _stated_size(self, request: RangeRequest, body: Body) -> int | None:
        if body.info.size is not None or body.stop is None:
            return body.info.size
        if request.stop is None:  # "bytes 5-9/*" as the answer to a request without an end
            return body.stop
        raise StoreError(
            "the server gives ranges without saying how long the object is; read it with connections=1",
            url=request.shard.url,
        )
