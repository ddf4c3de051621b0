"""The open streams of a dataset: idle streams that wait for the next call, and streams that are being read."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

from ais_tar2tf.base import forking, periodic
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.streams.reader import Stream
from ais_tar2tf.tfdata.liveness import LivenessTokens, can_observe_tokens, free_unused

__all__ = ["ActiveReads", "StreamPool"]

_STUCK = 0.5  # seconds; reading a chunk takes longer only when it waits for a store


@dataclass
class _IdleStream:
    since: float
    text: bytes  # of the stream's position
    stream: Stream
    token: int  # the number of the token of the iterator that uses the stream


class StreamPool:
    """Keeps the idle streams of a dataset, by position, until their next chunk is read.

    A stream is closed soon after its iterator is destroyed, and after `max_idle` seconds without use. When there are
    more than `max_streams`, the stream that has been idle longest is closed.
    """

    def __init__(self, max_streams: int, max_idle: float, tokens: LivenessTokens) -> None:
        self._max_streams = max_streams
        self._max_idle = max_idle
        self._tokens = tokens
        self._uses_tokens = can_observe_tokens()
        self._lock = forking.lock()
        self._idle: list[_IdleStream] = []  # the stream that has been idle longest comes first
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget all streams in a forked child: the parent uses them."""
        self._idle.clear()

    def take(self, text: bytes) -> Stream | None:
        """Remove the stream at a position, and return it; return None if the pool has no such stream."""
        with self._lock:
            self._idle = [each for each in self._idle if not each.stream.closed]
            for index, each in enumerate(self._idle):
                if each.text == text:
                    return self._idle.pop(index).stream
        return None

    def put(self, text: bytes, stream: Stream, token: int) -> None:
        """Keep a stream at a position for an iterator; `token` is the number of the iterator's token."""
        with self._lock:
            self._idle.append(_IdleStream(time.monotonic(), text, stream, token))
            surplus = self._idle.pop(0) if len(self._idle) > self._max_streams else None
        periodic.register(self)
        if surplus is not None:
            surplus.stream.close()

    def on_tick(self) -> bool:
        """Close streams of destroyed iterators, and streams that were idle too long; return whether any is left."""
        try:
            free_unused()
        except Tar2TFError:  # the interpreter is exiting, and closes all streams
            return False
        deadline = time.monotonic() - self._max_idle
        with self._lock:
            unwanted = [
                each
                for each in self._idle
                if each.since <= deadline or (self._uses_tokens and not self._tokens.is_held(each.token))
            ]
            self._idle = [each for each in self._idle if each not in unwanted and not each.stream.closed]
            is_left = bool(self._idle)
        for each in unwanted:
            each.stream.close()
        return is_left


class ActiveReads:
    """Keeps track of the streams that are being read, and closes them when they wait and an iterator was dropped.

    TensorFlow cannot destroy a dropped iterator before its call of `read_chunk` has returned, and this call may wait
    long for a store. Nobody knows which calls belong to the dropped iterator. So all streams that wait for a store
    are closed, and their calls return without records. For an iterator that is still in use, TensorFlow then calls
    `read_chunk` again, which opens a new stream at the same position.
    """

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._begun: dict[int, tuple[float, Stream]] = {}
        self._last_drop = -1.0  # when an iterator was dropped last
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget all reads in a forked child, which has no threads that read."""
        self._begun.clear()

    @contextlib.contextmanager
    def reading(self, stream: Stream) -> Generator[None]:
        """Track a stream while its next chunk is read in the body of this context."""
        with self._lock:
            self._begun[id(stream)] = time.monotonic(), stream
        periodic.register(self)
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(id(stream), None)

    def note_dropped(self) -> None:
        """Record that an iterator was dropped. Take no lock: Python calls this while it frees memory."""
        self._last_drop = time.monotonic()

    def on_tick(self) -> bool:
        """Close the streams that have waited since before the last drop; return whether any read is left.

        Each stream is closed once, in a thread of its own, because closing waits for the stream's lock.
        """
        now = time.monotonic()
        with self._lock:
            stuck = {
                key: stream
                for key, (since, stream) in self._begun.items()
                if since < self._last_drop and now - since > _STUCK
            }
            self._begun.update((key, (math.inf, stream)) for key, stream in stuck.items())
            is_left = bool(self._begun)
        for stream in stuck.values():
            threading.Thread(target=stream.close, name="ais_tar2tf-close", daemon=True).start()
        return is_left
