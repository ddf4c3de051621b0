"""Locks that a forked child can use, and a hook for objects that a fork makes useless to the child.

A fork copies every lock as it is at that moment. A lock that another thread of the parent holds is never released in
the child, because that thread does not exist there. So this package makes all its locks here; in a forked child each
of them is free again. What such a lock protects may have been half changed at the fork: an object for which that
matters repairs itself in `forked`.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

__all__ = ["Inherited", "at_fork", "condition", "event", "lock", "semaphore"]


class Inherited(Protocol):
    """An object that acts on a fork: it drops its parent's sockets and threads, which a child must not use."""

    def forked(self) -> None:
        """Called in a forked child before any other code of the child runs, when all locks are free again."""
        ...


_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_semaphores: weakref.WeakKeyDictionary[threading.Semaphore, int] = weakref.WeakKeyDictionary()
_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a new lock that is free in every forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def condition() -> threading.Condition:
    """Return a new condition that nobody holds or waits for in a forked child."""
    made = threading.Condition()
    _locks.add(made)
    return made


def event() -> threading.Event:
    """Return a new event that a forked child can set and wait for; whether it is set, the child inherits."""
    made = threading.Event()
    _locks.add(made)
    return made


def semaphore(count: int) -> threading.Semaphore:
    """Return a new semaphore that has all its `count` places free in a forked child."""
    made = threading.Semaphore(count)
    _semaphores[made] = count
    return made


def at_fork(one: Inherited) -> None:
    """Call `one.forked()` in every child that is forked while `one` is alive."""
    _inherited.add(one)


def _renew_all() -> None:
    for each in list(_locks):
        each._at_fork_reinit()  # what the standard library's own modules call in a child
    for each, count in list(_semaphores.items()):
        threading.Semaphore.__init__(each, count)
    for one in list(_inherited):
        one.forked()


if hasattr(os, "register_at_fork"):  # there is no fork elsewhere
    os.register_at_fork(after_in_child=_renew_all)
