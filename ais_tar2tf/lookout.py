"""One thread of the whole process that looks after what time changes. It runs while there is something to watch.

Watched are connections that are kept for reuse, streams of iterators that Python may have dropped, and waits that
become too long.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ais_tar2tf import forking

__all__ = ["Watched", "watch"]

_TICK = 0.5  # seconds between two looks: what is dropped ends within a second


class Watched(Protocol):
    """An object that something becomes of while nobody calls it."""

    def look(self) -> bool:
        """Do what is due, such as closing an idle connection; return whether to look again."""
        ...


class _Lookout:
    def __init__(self) -> None:
        self._lock = forking.lock()
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        forking.at_fork(self)

    def forked(self) -> None:
        """A child has no such thread, and its parent looks after what there was."""
        self._thread = None
        self._watched.clear()

    def add(self, one: Watched) -> None:
        with self._lock:
            self._watched.add(one)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="ais_tar2tf-lookout", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads are to be had, or the interpreter ends
                return
            self._thread = thread

    def _run(self) -> None:
        wait, goes_on = forking.event().wait, True
        try:
            while goes_on:
                wait(_TICK)
                self._look()
                with self._lock:
                    goes_on = bool(self._watched)
                    self._thread = self._thread if goes_on else None
        except BaseException:
            self._thread = None  # the next one that is watched begins another thread
            raise

    def _look(self) -> None:
        with self._lock:
            watched = list(self._watched)
        for one in watched:
            with self._lock:
                self._watched.discard(one)  # before it looks: from then on it may be added again
            if one.look():
                with self._lock:
                    self._watched.add(one)


_lookout = _Lookout()


def watch(one: Watched) -> None:
    """Call `one.look()` from time to time until it returns False. `one` may be dropped meanwhile."""
    _lookout.add(one)
