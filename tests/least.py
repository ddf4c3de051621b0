"""How long something takes by itself: what a busy machine adds, it adds to one try and not to all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 5


def least_seconds(work: Callable[[], object], below: float) -> float:
    """Of the first try that stays below, or of the best one."""
    found: list[float] = []
    while len(found) < _TRIES and (not found or found[-1] >= below):
        began = time.monotonic()
        work()
        found.append(time.monotonic() - began)
    return min(found)
