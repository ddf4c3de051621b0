"""Memory for blocks. A full-size buffer is used again after the reader has consumed its block."""

from __future__ import annotations

import numpy as np

from ais_tar2tf.fetch.ranges import BLOCK_BYTES
from ais_tar2tf.fetch.state import DownloadState

__all__ = ["BufferPool"]


class BufferPool:
    """The spare buffers of one download. Together they have at most as many bytes as its read-ahead."""

    def __init__(self, state: DownloadState) -> None:
        self._state = state
        self._spare: list[memoryview] = []

    def get(self, size: int) -> memoryview:
        """Return a buffer of at least `size` bytes."""
        # A last block of nearly full size also gets a full-size buffer, because other sizes are never used again.
        is_large = size > BLOCK_BYTES // 2
        with self._state.lock:
            if is_large and self._spare:
                return self._spare.pop()
        return np.empty(BLOCK_BYTES if is_large else size, np.uint8).data  # unlike a bytearray, not filled with zeros

    def give_back(self, buffer: memoryview) -> None:
        """Keep a full-size buffer for another block. The caller holds the lock of the state."""
        has_room = len(self._spare) * BLOCK_BYTES < self._state.read_ahead_bytes
        if len(buffer) == BLOCK_BYTES and not buffer.readonly and has_room:
            self._spare.append(buffer)

    def clear(self) -> None:
        """Free the spare buffers. The caller holds the lock of the state."""
        self._spare.clear()
