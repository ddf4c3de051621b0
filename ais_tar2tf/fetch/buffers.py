"""Memory for blocks. A buffer is used again after its block was consumed, or when nobody refers to it any more."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np

from ais_tar2tf.base.allocation import aligned_bytes
from ais_tar2tf.fetch.ranges import BLOCK_BYTES, HEADROOM
from ais_tar2tf.fetch.state import DownloadState

__all__ = ["BufferPool", "LentBuffers"]

_FULL_SIZE = HEADROOM + BLOCK_BYTES


class LentBuffers:
    """Buffers whose bytes somebody else may refer to. A buffer comes back when the last reference to it is gone."""

    def __init__(self) -> None:
        self._returned: deque[memoryview] = deque()  # appended to by whichever thread drops the last reference

    def lend(self, buffer: memoryview) -> memoryview:
        """Return a view of a buffer. All that refers to the view, such as an array over it, keeps the buffer lent."""
        lent = np.frombuffer(buffer, np.uint8)
        if not buffer.readonly:
            weakref.finalize(lent, self._returned.append, buffer).atexit = False
        return lent.data

    def take_back(self) -> memoryview | None:
        """Return a buffer that came back; None if there is none."""
        try:
            return self._returned.popleft()
        except IndexError:
            return None


class BufferPool:
    """The spare buffers of one download. Without headroom, they have at most as many bytes as its read-ahead."""

    def __init__(self, state: DownloadState) -> None:
        self._state = state
        self._spare: list[memoryview] = []
        self._lent = LentBuffers()

    def get(self, size: int) -> tuple[memoryview, int]:
        """Return a buffer, and the beginning of the part to fill, which has at least `size` bytes.

        Only a large buffer has headroom: small blocks would take many times their size with it.
        """
        # A last block of nearly full size also gets a full-size buffer, because other sizes are never used again.
        is_large = size > BLOCK_BYTES // 2
        with self._state.lock:
            while (returned := self._lent.take_back()) is not None:
                self.give_back(returned)
            if is_large and self._spare:
                return self._spare.pop(), HEADROOM
        return (aligned_bytes(_FULL_SIZE).data, HEADROOM) if is_large else (aligned_bytes(size).data, 0)

    def give_back(self, buffer: memoryview) -> None:
        """Keep a full-size buffer for another block. The caller holds the lock of the state."""
        has_room = len(self._spare) * BLOCK_BYTES < self._state.read_ahead_bytes
        if len(buffer) == _FULL_SIZE and not buffer.readonly and has_room:
            self._spare.append(buffer)

    def lend(self, buffer: memoryview) -> memoryview:
        """Return a view of a buffer, which is not used again before all references to the view are gone."""
        return self._lent.lend(buffer)

    def clear(self) -> None:
        """Free the spare buffers. The caller holds the lock of the state."""
        self._spare.clear()
