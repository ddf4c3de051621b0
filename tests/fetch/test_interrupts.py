"""Which store requests are interrupted when the reader abandons range requests."""

from __future__ import annotations

from ais_tar2tf.fetch import ShardRange
from ais_tar2tf.fetch.interrupts import Interrupts
from ais_tar2tf.fetch.range_requests import RangeRequest, RequestState, ShardDownload
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.stores import Identity
from ais_tar2tf.streams.arguments import read_options


def _in_flight(count: int, size: int) -> list[RangeRequest]:
    shard = ShardDownload(ShardRange("s.tar"), "memory://b/s.tar", Identity(), count * size, lacks_validator=False)
    requests = [RangeRequest(shard, at * size, (at + 1) * size, at * size) for at in range(count)]
    for request in requests:
        request.enter(RequestState.IN_FLIGHT)
    return requests


def _interrupts() -> Interrupts:
    return Interrupts(DownloadState(Tuning(read_options()), MIB))


def test_a_combined_request_whose_parts_are_abandoned_one_after_the_other_is_interrupted() -> None:
    interrupts, requests = _interrupts(), _in_flight(2, MIB)
    with interrupts.register(requests) as interrupt:
        assert interrupt is not None
        for request, fired in zip(requests, (False, True), strict=True):
            request.enter(RequestState.ABANDONED)
            interrupts.end_abandoned([request])
            assert interrupt.fired == fired


def test_short_requests_may_end_by_themselves_unless_they_are_interrupted_at_once() -> None:
    interrupts, (first, second) = _interrupts(), _in_flight(2, 64 * KIB)
    with interrupts.register([first]) as one, interrupts.register([second]) as other:
        assert one is not None
        assert other is not None
        first.enter(RequestState.ABANDONED)
        interrupts.end_abandoned([first])
        second.enter(RequestState.ABANDONED)
        interrupts.end_abandoned([second], at_once=True)
        assert (one.fired, other.fired) == (False, True)
