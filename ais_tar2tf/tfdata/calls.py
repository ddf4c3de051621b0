"""Calls of our Python by TensorFlow's threads: over, and no more of them, before the interpreter goes.

One that still wants the interpreter then never gets it, and whoever ends its iterator waits for it for ever.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import wraps
from typing import Any

from ais_tar2tf import forking
from ais_tar2tf.errors import Tar2TFError, for_tensorflow
from ais_tar2tf.fetch import close_all

__all__ = ["plainly", "watched"]

_PATIENCE = 20.0  # seconds for what a user's mapping does
_QUIET = 0.05  # seconds without a call: tf.data's buffers are full of errors, and nobody takes them


class _Calls:
    def __init__(self) -> None:
        self._changed = forking.condition()
        self._running = 0
        self._begun = 0
        self._ended = False
        forking.at_fork(self)

    def forked(self) -> None:
        """A child has none of the threads that called."""
        self._running = 0

    def begin(self) -> None:
        with self._changed:
            self._begun += 1
            if self._ended:
                raise Tar2TFError("the program ends; a dataset is read before that")
            self._running += 1

    def leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
        close_all()  # what waits for bytes waits no longer
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, _PATIENCE):
                return
            begun = -1
            while begun != self._begun:
                begun = self._begun
                self._changed.wait(_QUIET)


_calls = _Calls()
atexit.register(_calls.end)


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; while it runs the interpreter stays, and when that goes it is not begun."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        _calls.begin()
        try:
            return function(*arguments)
        finally:
            _calls.leave()

    return call


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as TensorFlow calls it: watched, and with errors whose text survives TensorFlow."""
    function = watched(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Tar2TFError as error:
            raise for_tensorflow(error) from None

    return call
