"""Reads an asynchronous iterator, such as obstore's, for synchronous callers. Each step has a timeout."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

__all__ = ["Steps"]

_T = TypeVar("_T")
_THREAD_LEAVES = 0.1  # seconds in which obstore's thread leaves Python, even on a busy machine


class Steps(Generic[_T]):
    """The items of an asynchronous iterator, one by one. The caller must close this object."""

    def __init__(self, items: AsyncIterator[_T]) -> None:
        self._items: AsyncIterator[_T] | None = items
        self._loop = asyncio.new_event_loop()

    def next(self, seconds: float | None) -> _T | None:
        """Return the next item, or None after the last one.

        Raises:
            TimeoutError: No item came within `seconds`, and the step was cancelled. With None, there is no timeout.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(self._next(seconds))
        return self._next_in_thread(seconds)

    def close(self) -> None:
        self._items = None  # frees the iterator and its connection
        self._loop.close()
        _last_end[0] = time.monotonic()

    async def _next(self, seconds: float | None) -> _T | None:
        assert self._items is not None
        try:
            return await asyncio.wait_for(anext(self._items), seconds)
        except StopAsyncIteration:
            return None

    def _next_in_thread(self, seconds: float | None) -> _T | None:
        """Run the step in another thread: the thread of a notebook already runs a loop and cannot run another one."""
        found: list[_T | None] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(self._loop.run_until_complete(self._next(seconds)))
            except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
                failed.append(error)

        thread = threading.Thread(target=run, name="ais_tar2tf-step", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]


_last_end = [-_THREAD_LEAVES]  # when the last iterator was closed, by `time.monotonic`


@atexit.register
def _wait_for_threads() -> None:
    """Let obstore's own thread leave Python before the process ends.

    If that thread still waits for the interpreter's lock then, Python kills the thread inside Rust, which aborts the
    whole process. There is no event to wait for.
    """
    time.sleep(max(0.0, _last_end[0] + _THREAD_LEAVES - time.monotonic()))
