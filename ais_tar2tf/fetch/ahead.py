"""What comes next, made by a thread while what came last is used: decompressing takes as long as all that follows.

The work waits for nothing but a core, so that leaving it alone takes no longer than one of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from ais_tar2tf.errors import StoreError
from ais_tar2tf.forking import at_fork

__all__ = ["Ahead"]

_T = TypeVar("_T")


class Ahead(Generic[_T]):
    """Gives what `step` gives, call by call, and has the next call made meanwhile; not behind a None.

    None is what `step` gives when it would have to wait for somebody: the reader waits in its place.
    """

    def __init__(self, step: Callable[[], _T | None], url: str) -> None:
        self._step = step
        self._url = url
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "ais_tar2tf-ahead")
        self._coming: Future[_T | None] | None = None
        self._failure: BaseException | None = None
        self.lost: bool = False  # what was coming, to a process that was forked meanwhile
        at_fork(self)

    def take(self) -> _T | None:
        """What comes next; the error that `step` raised in its place, from then on."""
        if self._failure is not None:
            raise self._failure
        coming, self._coming = self._coming, None
        try:
            taken = self._step() if coming is None else coming.result()
        except BaseException as error:
            self._failure = error
            raise
        if taken is not None:
            self._begin()
        return taken

    def _begin(self) -> None:
        if self._thread is None:
            return
        try:
            self._coming = self._thread.submit(self._step)
        except RuntimeError:  # the program ends, or no more threads are to be had: the reader does it itself
            self._thread = None

    def forked(self) -> None:
        """A child has no thread; what its parent's is at, it will never see."""
        self.lost = self._coming is not None
        if self.lost:
            why = "this reading was begun before the process was forked; begin a new one in the child"
            self._failure = StoreError(why, url=self._url)
        self._thread = None

    def close(self) -> None:
        """No step is under way when this returns, and no thread is left."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
