"""Locks that stay usable in a forked child, and a hook for objects that must act on a fork.

A fork copies every lock in its current state. If another thread of the parent holds a lock, the copy in the child is
never released, because that thread does not exist in the child. So this package makes all its locks by the functions
of this module. At a fork, this module makes the child's copies of these locks free again.

This module must not repair the data that a lock protects. A fork may happen while a thread has changed only a part of
these data. An object whose data would then be wrong repairs them in its method `forked()`.
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
        """Adapt to a forked child. All locks of this module are free again, and `os.fork` has not returned yet."""
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
    """Return a new condition. In a forked child, no thread holds this condition, and no thread waits for it."""
    made = threading.Condition()
    _locks.add(made)
    return made


def event() -> threading.Event:
    """Return a new event that also works in a forked child. The child inherits whether the event is set."""
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
