"""Downloads several small ranges by one store request, from stores that support it (`stores.MultiRange`)."""

from __future__ import annotations

from collections.abc import Sequence

from ais_tar2tf.fetch.interrupts import Interrupts
from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.stores import Identity, Interrupt, MultiRange, Store

__all__ = ["CombinedRequests"]

_SINGLE_INTERVAL = 64  # one range in 64 is requested singly, because only that answer states the shard's identity


class CombinedRequests:
    """Fills range requests by combined store requests, and returns those that must be requested singly."""

    def __init__(self, state: DownloadState, interrupts: Interrupts, store: Store) -> None:
        self._state = state
        self._interrupts = interrupts
        self._store = store
        self._counts: dict[str, int] = {}  # the number of the last range request, from 0, by the name of its shard

    def download(self, requests: Sequence[RangeRequest]) -> list[RangeRequest]:
        """Fill requests that were begun together; return the requests that must be downloaded singly.

        Some stores state no identity in a combined answer. Therefore some ranges are always requested singly.
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
                self._state.add_block(request, data, len(data))
                self._state.end(request)
        return single

    def _answer(self, requests: Sequence[RangeRequest], interrupt: Interrupt) -> Sequence[memoryview | None] | None:
        if not isinstance(self._store, MultiRange):
            return None
        wanted = [(request.shard.wanted.name, request.start, request.stop or request.start) for request in requests]
        try:
            answer = self._store.read_many(wanted, interrupt=interrupt)
        except Exception:  # noqa: BLE001  # the single requests either succeed, or raise the error again
            return None
        if answer is None:
            return None
        # AIStore's answer states no identity; the single requests check it (`_is_single`).
        stated = answer.identity
        if stated != Identity() and not all(each.shard.identity.is_proved_by(stated) for each in requests):
            return None
        return answer.pieces

    def _is_single(self, request: RangeRequest) -> bool:
        name = request.shard.wanted.name
        self._counts[name] = number = self._counts.get(name, -1) + 1
        return number % _SINGLE_INTERVAL == 0
