"""How many calls of a Python mapping run at once: as many as pay off. TensorFlow's threads come through here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ais_tar2tf import forking
from ais_tar2tf.account import Choice
from ais_tar2tf.fetch.tuning import INTERVAL, Climb

__all__ = ["Gate"]

_Result = TypeVar("_Result")


class Gate:
    """Lets as many calls run at once as `climb` says, and tells it how fast they are and how much of it is waiting.

    A call waits while it does not compute: for a disk, for a network, or for Python's lock. More calls at once help
    in the first two cases, and are taken back in the third.
    """

    def __init__(
        self,
        climb: Climb,
        tell: Callable[[dict[str, Choice]], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._climb = climb
        self._tell = tell
        self._clock = clock
        self._computed = computed
        self._free = forking.condition()
        self._active = 0
        self._since: float | None = None
        self._calls = 0
        self._waited = 0.0

    def call(self, function: Callable[[], _Result]) -> _Result:
        with self._free:
            while self._active >= self._climb.value:
                self._free.wait()
            self._active += 1
        began, computed = self._clock(), self._computed()
        try:
            return function()
        finally:
            ended = self._clock()
            self._leave(ended, (ended - began) - (self._computed() - computed))

    def _leave(self, now: float, waited: float) -> None:
        with self._free:
            self._active -= 1
            self._calls += 1
            self._waited += waited
            self._since = now if self._since is None else self._since
            passed = now - self._since
            if passed >= INTERVAL:
                self._decide(passed)
                self._since, self._calls, self._waited = now, 0, 0.0
                self._free.notify_all()
            else:
                self._free.notify()

    def _decide(self, passed: float) -> None:
        before, rate = self._climb.value, self._calls / passed
        waiting = self._waited / (passed * before)
        self._climb.note(rate, waiting)
        if self._climb.value != before:
            why = f"{rate:,.0f} mappings/s, which waited {waiting:.0%} of the time of {before} calls"
            self._tell({"parallel": Choice(f"{self._climb.value}", why)})
