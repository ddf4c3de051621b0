"""Open streams: those that wait until a next chunk is wanted, and those whose next chunk is being read."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from ais_tar2tf import forking, lookout
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.reading import Stream
from ais_tar2tf.tfdata.tokens import Tokens, free_unused, observed

__all__ = ["StreamPool", "UnderWay"]

_STUCK = 0.5  # seconds that reading a chunk takes when it waits for bytes


@dataclass
class _Waiting:
    since: float
    state: bytes
    stream: Stream
    token: int  # of the iterator that left it


class StreamPool:
    """Open streams by the position at which they stand.

    A stream is closed soon after its iterator is destroyed, and when nobody has taken it for `dropped` seconds.
    """

    def __init__(
        self,
        most: int,
        dropped: float,
        tokens: Tokens,
        *,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[], None] = free_unused,
    ) -> None:
        self._most = most
        self._dropped = dropped
        self._tokens = tokens
        self._clock = clock
        self._free = free
        self._observed = observed()
        self._lock = forking.lock()
        self._waiting: list[_Waiting] = []  # the longest first
        forking.at_fork(self)

    def forked(self) -> None:
        """A child's parent goes on with the streams."""
        self._waiting.clear()

    def take(self, state: bytes) -> Stream | None:
        """Return the stream that stands at a position, which is the caller's from now on; None if there is none."""
        with self._lock:
            self._waiting = [each for each in self._waiting if not each.stream.closed]
            for index, each in enumerate(self._waiting):
                if each.state == state:
                    return self._waiting.pop(index).stream
        return None

    def put(self, state: bytes, stream: Stream, token: int) -> None:
        """Keep a stream for the next chunk of the iterator that has this token."""
        with self._lock:
            self._waiting.append(_Waiting(self._clock(), state, stream, token))
            surplus = self._waiting.pop(0) if len(self._waiting) > self._most else None
        lookout.watch(self)
        if surplus is not None:
            surplus.stream.close()

    def look(self) -> bool:
        """Close the streams of iterators that are gone, and those that waited too long."""
        try:
            self._free()
        except Tar2TFError:  # the program ends, and closes all streams
            return False
        deadline = self._clock() - self._dropped
        with self._lock:
            unwanted = [each for each in self._waiting if each.since <= deadline or self._is_left(each)]
            self._waiting = [each for each in self._waiting if each not in unwanted and not each.stream.closed]
            is_left = bool(self._waiting)
        for each in unwanted:
            each.stream.close()
        return is_left

    def _is_left(self, waiting: _Waiting) -> bool:
        return self._observed and not self._tokens.is_held(waiting.token)


class UnderWay:
    """Streams whose next chunk is being read.

    TensorFlow destroys a dropped iterator only when the call that reads its next chunk has returned, and that may
    wait for a server for long. So after a drop, streams that wait are closed. The call then returns without records.
    An iterator that lives is called again by TensorFlow, and opens another stream at the same position.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = forking.lock()
        self._begun: dict[int, tuple[float, Stream]] = {}
        self._dropped = -1.0  # when an iterator was dropped last
        forking.at_fork(self)

    def forked(self) -> None:
        """A child has none of the threads that read."""
        self._begun.clear()

    @contextlib.contextmanager
    def reading(self, stream: Stream) -> Generator[None]:
        """Read the next chunk of a stream in the body of this context."""
        with self._lock:
            self._begun[id(stream)] = self._clock(), stream
        lookout.watch(self)
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(id(stream), None)

    def note_dropped(self) -> None:
        """Note that an iterator was dropped: Python calls this while it frees memory, so no lock may be taken."""
        self._dropped = self._clock()

    def look(self) -> bool:
        """Close streams that have waited since before an iterator was dropped.

        A thread of its own closes each, once: closing waits for the stream's lock.
        """
        now = self._clock()
        with self._lock:
            stuck = {
                key: stream
                for key, (since, stream) in self._begun.items()
                if since < self._dropped and now - since > _STUCK
            }
            self._begun.update((key, (math.inf, stream)) for key, stream in stuck.items())
            is_left = bool(self._begun)
        for stream in stuck.values():
            threading.Thread(target=stream.close, name="ais_tar2tf-close", daemon=True).start()
        return is_left
