"""Streams of records that go on from epoch to epoch: the one loop over them. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ais_tar2tf.records import Records

__all__ = ["EpochStream"]

_EMPTY_EPOCHS = 1_000  # in a row, then none will have records; of few shards a host may have none for some epochs


class EpochStream(ABC):
    """Records in chunks."""

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @property
    @abstractmethod
    def chunk_bytes(self) -> int:
        """Of a chunk of records, about."""

    @abstractmethod
    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        """The next records, at most `most` and the chunk's limits; none at the end of the epoch.

        `full` waits for more until `most` or the chunk's limits are reached: where each costs more than its records.
        """

    @abstractmethod
    def begin_next_epoch(self) -> bool:
        """False behind the last one."""

    @abstractmethod
    def close(self) -> None: ...

    def next_chunk(self, most: int | None = None, *, full: bool = False) -> Records:
        """As `next_in_epoch`; none at the end of the last epoch, and of epochs without end that hold nothing."""
        for _ in range(_EMPTY_EPOCHS):
            chunk = self.next_in_epoch(most, full=full)
            if chunk or not self.begin_next_epoch():
                return chunk
        return Records()

    def discard(self, count: int) -> int:
        """Go on `count` records later; return how many there were."""
        left = count
        while left > 0:
            chunk = self.next_chunk(left)
            if not chunk:
                break
            left -= len(chunk)
        return count - left
