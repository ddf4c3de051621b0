"""The runs of a dataset. A *run* is the pass of one iterator over the dataset.

Each run has a random number, which all its positions contain. Iterators that were restored from the same checkpoint
belong to the same run.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ais_tar2tf.base import forking
from ais_tar2tf.streams.order import StreamPosition

__all__ = ["Run", "Runs"]

_REMEMBERED = 64  # the runs of one dataset that are remembered; the least recently used run is forgotten


@dataclass
class Run:
    """The facts that a reader remembers about one run.

    Attributes:
        begin: The first position of the run; None if another process began the run.
        end_count: The record count at the end of the run; None until the run has ended.
        error: The error that ended the run, if a mapping that can fail would suppress it.
        records_before: The number of records before `begin` in the first epoch.
        last_return: The time at which `read_chunk` last returned, by `time.perf_counter`; None before that.
    """

    begin: StreamPosition | None = None
    end_count: int | None = None
    error: Exception | None = None
    records_before: int = 0
    last_return: float | None = None


class Runs:
    """The latest runs of one dataset, by their numbers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._runs: OrderedDict[int, Run] = OrderedDict()

    def of(self, position: StreamPosition) -> Run:
        """Return the run of a position; a new run if it is not remembered."""
        with self._lock:
            run = self._runs.setdefault(position.run, Run())
            self._runs.move_to_end(position.run)
            if len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)
            return run

    def latest_begin(self) -> StreamPosition:
        """Return the first position of the most recently used run that this process began."""
        with self._lock:
            begins = [run.begin for run in self._runs.values() if run.begin is not None]
        return begins[-1]
