"""Downloads several small ranges by one *combined* store request, if the store supports this (`stores.MultiRange`).

This module must not retry a request, and must not raise an error of a store. Instead, it returns to the caller the
range requests that were not filled. The caller sends these one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ais_tar2tf.fetch.interrupts import Interrupts
from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.stores import Identity, Interrupt, MultiRange, Store

__all__ = ["CombinedRequests"]

# Every 64th range of a shard is requested by itself. Some stores state no identity in a combined answer, but the
# answer to a single request shows whether the shard has changed.
_SINGLE_INTERVAL = 64


class CombinedRequests:
    """Fills range requests by combined store requests, as far as the store supports them."""

    def __init__(self, state: DownloadState, interrupts: Interrupts, store: Store) -> None:
        self._state = state
        self._interrupts = interrupts
        self._store = store
        self._counts: dict[str, int] = {}  # by shard name: the number of the shard's latest range request, from 0

    def download(self, requests: Sequence[RangeRequest]) -> list[RangeRequest]:
        """Fill range requests by one combined request. Return the range requests that must be sent one by one.

        The result includes every 64th range request of a shard: its answer shows whether the shard has changed.
        """
        with self._state.lock:
            single = [request for request in requests if self._is_single(request)]
        combined = [request for request in requests if request not in single]
        with self._interrupts.register(combined) as interrupt:
            answer = self._answer(combined, interrupt) if interrupt is not None else None
        if answer is None:
            return list(requests)
        with self._state.lock:
            for request, data in zip(combined, answer, strict=True):
                if data is None:
                    single.append(request)
                    continue
                self._state.add_block(request, data, 0, len(data))
                self._state.end(request)
        return single

    def _answer(self, requests: Sequence[RangeRequest], interrupt: Interrupt) -> Sequence[memoryview | None] | None:
        """Return the bytes of each request. An item is None if its request must be sent by itself.

        The whole result is None if all requests must be sent one by one. This is so if the store supports no combined
        requests, if the combined request failed, or if the answer states another identity than a shard has.
        """
        if not isinstance(self._store, MultiRange):
            return None
        wanted = [(request.shard.wanted.name, request.start, request.stop or request.start) for request in requests]
        try:
            answer = self._store.read_many(wanted, interrupt=interrupt)
        except Exception:  # noqa: BLE001  # the caller sends the requests one by one: they succeed or fail again
            return None
        if answer is None:
            return None
        # AIStore's combined answer states no identity. The answers to the single requests (`_is_single`) show whether
        # the shard has changed.
        stated = answer.identity
        if stated != Identity() and not all(each.shard.identity.is_proved_by(stated) for each in requests):
            return None
        return answer.pieces

    def _is_single(self, request: RangeRequest) -> bool:
        """Count a range request, and return whether it must be sent by itself."""
        name = request.shard.wanted.name
        self._counts[name] = number = self._counts.get(name, -1) + 1
        return number % _SINGLE_INTERVAL == 0
