"""`ConcurrencyLimit`: limits how many calls of a Python mapping run at the same time, and adjusts this limit.

This module measures the calls and enforces the limit. It must not choose the limit: `Climb` does, from the
measurements.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ais_tar2tf.base import forking
from ais_tar2tf.base.monitoring.stats import AutoChoice
from ais_tar2tf.fetch.tuning import INTERVAL, Climb

__all__ = ["ConcurrencyLimit"]

_Result = TypeVar("_Result")


class ConcurrencyLimit:
    """Limits how many calls run at the same time, and adjusts the limit to the measured calls.

    The measurements are the number of calls a second (the rate), and the fraction of time in which the calls wait. A
    call that does not compute waits for a disk, for a network, or for Python's global lock. With a disk or a network,
    a higher limit raises the rate. With the global lock the rate does not rise, and the limit is lowered again.

    Args:
        climb: Holds the limit, and chooses the next limit.
        report: Called with the limit when it has changed.
        clock: Returns the time in seconds.
        cpu_clock: Returns the time for which the current thread has computed, in seconds.
    """

    def __init__(
        self,
        climb: Climb,
        report: Callable[[dict[str, AutoChoice]], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._climb = climb
        self._report = report
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._free = forking.condition()
        self._active = 0
        self._since: float | None = None
        self._calls = 0
        self._waited = 0.0

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Wait until the limit permits another call, call a function, and return its result."""
        with self._free:
            while self._active >= self._climb.value:
                self._free.wait()
            self._active += 1
        began, computed = self._clock(), self._cpu_clock()
        try:
            return function()
        finally:
            ended = self._clock()
            self._leave(ended, (ended - began) - (self._cpu_clock() - computed))

    def _leave(self, now: float, waited: float) -> None:
        """Count a call that has ended, and wake callers that wait.

        Args:
            now: The time at which the call ended.
            waited: The seconds in which the call did not compute.
        """
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
        """Choose the limit anew, from the calls that ended in the last `passed` seconds; report a changed limit."""
        before, rate = self._climb.value, self._calls / passed
        waiting = self._waited / (passed * before)
        self._climb.note(rate, waiting)
        if self._climb.value != before:
            why = f"{rate:,.0f} mappings/s, which waited {waiting:.0%} of the time of {before} calls"
            self._report({"parallel": AutoChoice(f"{self._climb.value}", why)})
