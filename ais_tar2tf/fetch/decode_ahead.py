"""Decompresses ahead of the reader: a thread runs the next step while the reader uses the previous result.

A step must compute only and never wait, so that `close()` takes no longer than one step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from ais_tar2tf.base.forking import at_fork
from ais_tar2tf.errors import StoreError

__all__ = ["DecodeAhead"]

_T = TypeVar("_T")


class DecodeAhead(Generic[_T]):
    """Returns the results of the function `step`, one for each call of `next()`, and runs the next step meanwhile.

    If `step` would have to wait for bytes, it returns None. Then the thread does not run the next step: the reader
    waits for the bytes and calls `next()` again.
    """

    def __init__(self, step: Callable[[], _T | None], url: str) -> None:
        self._step = step
        self._url = url
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "ais_tar2tf-ahead")
        self._next_result: Future[_T | None] | None = None
        self._failure: BaseException | None = None
        self.lost_step: bool = False  # the process was forked during a step, whose result stays in the parent
        at_fork(self)

    def next(self) -> _T | None:
        """Return the next result, or raise the error of the step. Every later call raises the same error again."""
        if self._failure is not None:
            raise self._failure
        running, self._next_result = self._next_result, None
        try:
            result = self._step() if running is None else running.result()
        except BaseException as error:
            self._failure = error
            raise
        if result is not None:
            self._start_step()
        return result

    def _start_step(self) -> None:
        if self._thread is None:
            return
        try:
            self._next_result = self._thread.submit(self._step)
        except RuntimeError:  # no thread can be started, or the program ends: from now on the reader runs the steps
            self._thread = None

    def forked(self) -> None:
        """Make `next()` fail in a forked child if a step was running, since the step's result stays in the parent."""
        self.lost_step = self._next_result is not None
        if self.lost_step:
            why = "this reading was begun before the process was forked; begin a new one in the child"
            self._failure = StoreError(why, url=self._url)
        self._thread = None

    def close(self) -> None:
        """Wait for the running step, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
