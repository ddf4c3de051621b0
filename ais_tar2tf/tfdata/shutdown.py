"""The shutdown of callbacks: while the interpreter exits, no thread of TensorFlow may run Python functions.

A thread that asks for the interpreter's lock after the exit never gets the lock, and TensorFlow would wait
for this thread forever. So the exit refuses new callbacks, and waits for the running callbacks, and then until
TensorFlow calls no more. This module must not let the exit wait without a bound.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from ais_tar2tf.base import forking
from ais_tar2tf.errors import Tar2TFError, for_tensorflow
from ais_tar2tf.fetch import close_all

__all__ = ["tensorflow_callback", "tracked"]

_EXIT_SECONDS = 20.0  # how long the exit waits at most; a running callback may call a user's mapping
# If no callback begins for this time, none follows. Each refused call puts an error into a buffer of tf.data, and
# tf.data stops calling when its buffers are full. But an endless dataset that ignores errors never stops.
_QUIET_SECONDS = 0.05


class _RunningCallbacks:
    """The callbacks that are running. After `shut_down`, new callbacks are refused."""

    def __init__(self) -> None:
        self._changed = forking.condition()
        self._running = 0
        self._begun = 0  # calls so far, with those that were refused
        self._is_shut_down = False
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget all callbacks in a forked child, which has no threads that run them."""
        self._running = 0

    def begin(self) -> None:
        with self._changed:
            self._begun += 1
            if self._is_shut_down:
                raise Tar2TFError("the program is exiting; read datasets before its end")
            self._running += 1

    def end(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def shut_down(self) -> None:
        """Refuse new callbacks, wait until the running ones end, and then until TensorFlow begins no more."""
        deadline = time.monotonic() + _EXIT_SECONDS
        with self._changed:
            self._is_shut_down = True
        close_all()  # wakes the callbacks that wait for bytes
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, _EXIT_SECONDS):
                return
            begun = -1
            while begun != self._begun and time.monotonic() < deadline:
                begun = self._begun
                self._changed.wait(_QUIET_SECONDS)


_callbacks = _RunningCallbacks()
atexit.register(_callbacks.shut_down)


def tracked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the exit of the interpreter wait for running calls of a function, and refuse calls that begin later."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        _callbacks.begin()
        try:
            return function(*arguments)
        finally:
            _callbacks.end()

    return call


def tensorflow_callback(function: Callable[..., Any]) -> Callable[..., Any]:
    """Prepare a function for calls by TensorFlow: as `tracked`, and raise errors whose text TensorFlow keeps."""
    function = tracked(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Tar2TFError as error:
            raise for_tensorflow(error) from None

    return call
