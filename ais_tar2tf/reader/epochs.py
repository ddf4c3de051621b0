"""Streams of records that go on from epoch to epoch: the one loop over them. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ais_tar2tf.records import Record

__all__ = ["EpochStream"]


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
    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> list[Record]:
        """The next records, at most `most` and the chunk's limits; [] at the end of the epoch.

        `full` waits for more where a chunk would be far below its limits: where each costs more than its records.
        """

    @abstractmethod
    def begin_next_epoch(self) -> bool:
        """False behind the last one."""

    @abstractmethod
    def close(self) -> None: ...

    def next_chunk(self, most: int | None = None, *, full: bool = False) -> list[Record]:
        """As `next_in_epoch`; [] at the end of the last epoch."""
        while True:
            chunk = self.next_in_epoch(most, full=full)
            if chunk or not self.begin_next_epoch():
                return chunk

    def discard(self, count: int) -> None:
        """Go on `count` records later."""
        while count > 0:
            chunk = self.next_chunk(count)
            if not chunk:
                return
            count -= len(chunk)
