"""Periodic calls: one thread calls `on_tick()` of every registered object twice a second.

For example, a pool of connections closes idle connections in `on_tick()`. The thread runs only while objects are
registered. It holds no strong references, so it keeps no object alive.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ais_tar2tf.base import forking

__all__ = ["Periodic", "register"]

_TICK = 0.5  # seconds between two calls of the same object


class Periodic(Protocol):
    """An object that has work to do at times when no other code calls it."""

    def on_tick(self) -> bool:
        """Do the work that is due now. Return whether to call this method again."""
        ...


class _PeriodicCaller:
    def __init__(self) -> None:
        self._lock = forking.lock()
        self._registered: weakref.WeakSet[Periodic] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget thread and objects in a forked child: only the parent has the thread, and it still calls them."""
        self._thread = None
        self._registered.clear()

    def register(self, item: Periodic) -> None:
        with self._lock:
            self._registered.add(item)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="ais_tar2tf-periodic", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started, or the interpreter is shutting down
                return
            self._thread = thread

    def _run(self) -> None:
        wait, has_items = forking.event().wait, True
        try:
            while has_items:
                wait(_TICK)
                self._call_all()
                with self._lock:
                    has_items = bool(self._registered)
                    self._thread = self._thread if has_items else None
        except BaseException:
            self._thread = None  # the next call of `register` starts another thread
            raise

    def _call_all(self) -> None:
        with self._lock:
            registered = list(self._registered)
        for item in registered:
            with self._lock:
                # Remove the object before its call, because another thread may register it again during the call.
                self._registered.discard(item)
            if item.on_tick():
                with self._lock:
                    self._registered.add(item)


_caller = _PeriodicCaller()


def register(item: Periodic) -> None:
    """Call `item.on_tick()` regularly, until it returns False or `item` is garbage-collected."""
    _caller.register(item)
