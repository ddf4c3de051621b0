"""What a forked child must not take over: locks that its parent's threads may hold, and its parent's streams."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Inherited", "at_fork"]


class Inherited(Protocol):
    """What a child finds in its memory and did not make."""

    def forked(self) -> None:
        """Called in a forked child, before anything else there: make new locks, leave the parent's sockets alone."""
        ...


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def at_fork(one: Inherited) -> None:
    """`one.forked()` is called in every child that is forked while it lives."""
    _inherited.add(one)


def _tell_all() -> None:
    for one in list(_inherited):
        one.forked()


if hasattr(os, "register_at_fork"):  # there is no fork elsewhere
    os.register_at_fork(after_in_child=_tell_all)
