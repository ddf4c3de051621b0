"""Open streams that wait for the next chunk, by the position at which they stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ais_tar2tf import forking, lookout
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.reading import Stream
from ais_tar2tf.tfdata.tokens import Tokens, free_unused, observed

__all__ = ["StreamPool"]


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
