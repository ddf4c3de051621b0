"""One thread of the whole process that closes what nobody uses any more. It runs while there is something to watch.

Watched are connections that are kept for reuse, and streams of iterators that Python may have dropped.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ais_tar2tf import forking

__all__ = ["Idle", "watch"]

_TICK = 0.5  # seconds between two looks: what is dropped ends within a second


class Idle(Protocol):
    """Something that holds what may become idle."""

    def close_idle(self) -> bool:
        """Close what is idle; return whether anything is left that may become idle."""
        ...


class _Watch:
    def __init__(self) -> None:
        self._lock = forking.lock()
        self._watched: weakref.WeakSet[Idle] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        forking.at_fork(self)

    def forked(self) -> None:
        """A child has no such thread."""
        self._thread = None

    def add(self, one: Idle) -> None:
        with self._lock:
            self._watched.add(one)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="ais_tar2tf-idle", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads are to be had, or the interpreter ends
                return
            self._thread = thread

    def _run(self) -> None:
        wait = threading.Event().wait
        while True:
            wait(_TICK)
            self._look()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return

    def _look(self) -> None:
        with self._lock:
            watched = list(self._watched)
        for one in watched:
            with self._lock:
                self._watched.discard(one)  # before it is looked at: from then on it may be added again
            if one.close_idle():
                with self._lock:
                    self._watched.add(one)


_watch = _Watch()


def watch(one: Idle) -> None:
    """Call `one.close_idle()` from time to time until it returns False. `one` may be dropped meanwhile."""
    _watch.add(one)
