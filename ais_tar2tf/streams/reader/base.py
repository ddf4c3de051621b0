"""The base class of all streams of records, and its loop from epoch to epoch. This module must not do I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ais_tar2tf.records import Records
from ais_tar2tf.streams.order import MOST_EMPTY_EPOCHS, StreamPosition

__all__ = ["Stream"]


class Stream(ABC):
    """An open stream of records, read in chunks. A closed stream cannot be read again."""

    @property
    @abstractmethod
    def position(self) -> StreamPosition:
        """The position of the next record."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the stream was closed, by `close` or because its `ReadSession` was closed."""

    @property
    @abstractmethod
    def chunk_bytes(self) -> int:
        """The approximate size of a chunk, in bytes."""

    @abstractmethod
    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        """Return the next chunk of this epoch, or no records at the end of the epoch.

        Args:
            most: The maximum number of records. None, or a larger number, stands for `Limits.chunk_records`.
            full: Whether to wait until the chunk has `most` records or about `chunk_bytes` bytes. If False, the
                records that have arrived are returned at once. Full chunks suit a caller that does much work for
                each chunk.
        """

    @abstractmethod
    def begin_next_epoch(self) -> bool:
        """Move to the start of the next epoch; return False after the last epoch."""

    @abstractmethod
    def close(self) -> None:
        """Close the stream, its lanes and their connections."""

    def next_chunk(self, most: int | None = None, *, full: bool = False) -> Records:
        """Return the next chunk of this epoch.

        If this epoch has ended, begin the next epoch that has records, and return the first chunk of that epoch.

        The arguments are those of `next_in_epoch`. The result is empty after the last epoch, and after
        `MOST_EMPTY_EPOCHS` epochs without records.
        """
        for _ in range(MOST_EMPTY_EPOCHS):
            chunk = self.next_in_epoch(most, full=full)
            if chunk or not self.begin_next_epoch():
                return chunk
        return Records()

    def discard(self, count: int) -> int:
        """Read and drop up to `count` records; return the number of records dropped."""
        left = count
        while left > 0:
            chunk = self.next_chunk(left)
            if not chunk:
                break
            left -= len(chunk)
        return count - left
