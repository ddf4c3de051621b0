"""Writing behind: what is handed over is written in order by a thread, while the next records are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ais_tar2tf.forking import at_fork
from ais_tar2tf.options import KIB

__all__ = ["WriteBehind"]

_WORTH = 256 * KIB  # below it, handing over costs more than writing
_WAITING = 2  # writes that are not done yet, each of some 2 MB: one is at work, one is next


class WriteBehind:
    """Calls `write` with each of the pieces that it is given; its errors come with a later call."""

    def __init__(self, write: Callable[[Sequence[bytes | memoryview]], None]) -> None:
        self._write = write
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        at_fork(self)

    def forked(self) -> None:
        """A child has no such thread, and would wait for it for ever."""
        self._pool = None
        self._waiting.clear()

    def add(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Pieces that are views may be gone later: they are written before this returns."""
        late = not isinstance(pieces[0], memoryview) and sum(map(len, pieces)) >= _WORTH
        if not late:
            self.drain()
            self._write(pieces)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="ais_tar2tf-write")
        while len(self._waiting) >= _WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._write, pieces))

    def drain(self) -> None:
        """All is written."""
        while self._waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """No thread is left; what waits is written or given up."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
