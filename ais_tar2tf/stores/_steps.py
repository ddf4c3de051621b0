"""Asynchronous iterators, such as obstore's, taken one step at a time, each within bounded time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

__all__ = ["Steps"]

_T = TypeVar("_T")
# Seconds for obstore's own thread to leave Python behind the last step. One that still wants the interpreter's lock
# when the process ends is killed within Rust, and then the whole process is aborted.
_LEAVES = 0.001


class Steps(Generic[_T]):
    """The items of an asynchronous iterator for callers that are not. Close it."""

    def __init__(self, items: AsyncIterator[_T]) -> None:
        self._items: AsyncIterator[_T] | None = items
        self._loop = asyncio.new_event_loop()

    def next(self, seconds: float | None) -> _T | None:
        """Return the next item, or None behind the last.

        Raises:
            TimeoutError: It did not come within `seconds`, if that is not None; what was under way is cancelled.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(self._next(seconds))
        return self._next_elsewhere(seconds)

    def close(self) -> None:
        self._items = None  # what it holds, such as a connection, goes with it
        self._loop.close()
        time.sleep(_LEAVES)

    async def _next(self, seconds: float | None) -> _T | None:
        assert self._items is not None
        try:
            return await asyncio.wait_for(anext(self._items), seconds)
        except StopAsyncIteration:
            return None

    def _next_elsewhere(self, seconds: float | None) -> _T | None:
        """From a notebook, whose thread has a loop that runs: no other one can run in it."""
        found: list[_T | None] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(self._loop.run_until_complete(self._next(seconds)))
            except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
                failed.append(error)

        thread = threading.Thread(target=run, name="ais_tar2tf-step", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]
