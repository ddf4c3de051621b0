"""Measure a duration as the best of several tries, because other load slows single tries, but rarely all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 5


def best_seconds(work: Callable[[], object], below: float) -> float:
    """Return the duration of the first try that takes less than `below` seconds, or of the fastest of five tries."""
    durations: list[float] = []
    while len(durations) < _TRIES and (not durations or durations[-1] >= below):
        began = time.monotonic()
        work()
        durations.append(time.monotonic() - began)
    return min(durations)
