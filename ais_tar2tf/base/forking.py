"""Locks that stay usable in a forked child, and a hook for objects that must act on a fork.

A fork copies every lock in its current state. A lock that another thread of the parent holds is never released in the
child, because that thread does not exist there. So this package makes all its locks here, and each of these locks
is free again in a forked child.

This module must not repair the state that a lock protects. At the fork, this state may be half changed. An object for
which this matters repairs its state in `forked()`.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

__all__ = ["Inherited", "at_fork", "condition", "event", "lock", "semaphore"]


class Inherited(Protocol):
    """An object that acts on a fork: in a child, it drops sockets and threads, which only the parent may use."""

    def forked(self) -> None:
        """Adapt to a forked child. All locks are free again, and no other code of the child has run yet."""
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
    """Return a new condition that no thread holds or waits for in a forked child."""
    made = threading.Condition()
    _locks.add(made)
    return made


def event() -> threading.Event:
    """Return a new event that a forked child can set and wait for. The child inherits whether the event is set."""
    made = threading.Event()
    _locks.add(made)
    return made


def semaphore(count: int) -> threading.Semaphore:
    """Return a new semaphore, whose value is `count` again in a forked child."""
    made = threading.Semaphore(count)
    _semaphores[made] = count
    return made


def at_fork(item: Inherited) -> None:
    """Call `item.forked()` in every child that is forked while `item` is alive."""
    _inherited.add(item)


def _renew_all() -> None:
    for each in list(_locks):
        each._at_fork_reinit()  # modules of the standard library also call this private method
    for each, count in list(_semaphores.items()):
        threading.Semaphore.__init__(each, count)
    for item in list(_inherited):
        item.forked()


if hasattr(os, "register_at_fork"):  # absent on systems without fork
    os.register_at_fork(after_in_child=_renew_all)
