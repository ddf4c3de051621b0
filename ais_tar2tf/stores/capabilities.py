"""Capabilities that only some stores or bodies have. Callers test for these, not for a store's class.

capability        offers                                        offered by
LocalFiles        paths, and reads at any offset at no cost     file
MultiRange        many ranges with one request                  ais, http, and a cache over ais
Caching           forgetting cached bytes of an object          a cache
SeekableBody      continuing at any offset, at no cost          bodies of LocalFiles
TransferableBody  handing the body over to another reader       bodies of ais, http, s3, gs and az

`streams/in_cluster/store.py` adds SelectsInside, for stores that look into shards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.stores.base import Body, Interrupt, Store
from ais_tar2tf.stores.identity import Identity

__all__ = ["Caching", "LocalFiles", "MultiRange", "MultiRangeAnswer", "SeekableBody", "TransferableBody"]


class SeekableBody(Body, Protocol):
    """A body that can continue at any offset, at no cost."""

    content: FileBytes

    @abstractmethod
    def seek(self, position: int) -> None:
        """Let the next `readinto` begin at `position`, an offset in the object."""


@runtime_checkable
class LocalFiles(Protocol):
    """A store of files of this machine: they have paths, and reading at any offset costs no request."""

    @abstractmethod
    def local_path(self, name: str) -> Path:
        """Return the path of an object or a folder, whether or not it exists."""

    @abstractmethod
    def url(self, name: str) -> str: ...

    @abstractmethod
    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> SeekableBody: ...


@dataclass(frozen=True, slots=True)
class MultiRangeAnswer:
    """The ranges that came in one answer, and the identity of their object as far as the answer states it."""

    pieces: Sequence[memoryview | None]  # in the order of the request; None: request this range by itself
    identity: Identity


@runtime_checkable
class MultiRange(Protocol):
    """A store that answers many ranges at once."""

    across_objects: bool  # whether the ranges of one request may be of different objects

    @property
    def ranges_at_once(self) -> int:
        """The greatest number of ranges in one request; 1 where the server does not support such requests."""
        ...

    @abstractmethod
    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer | None:
        """Return the bytes of each (name, start, stop); None if the caller must request them one by one."""


@runtime_checkable
class Caching(Protocol):
    """A store that caches the bytes read from it, and answers later reads with them."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Discard the cached bytes of an object, because they have turned out to be wrong."""

    @abstractmethod
    def in_whole_blocks(self, total: int) -> Store:
        """Return a store for small reads spread over `total` bytes. It caches whole blocks, as many as fit."""


@runtime_checkable
class TransferableBody(Protocol):
    """A body that another reader can take over, with its own Interrupt."""

    @abstractmethod
    def hand_over(self, interrupt: Interrupt | None) -> None: ...
