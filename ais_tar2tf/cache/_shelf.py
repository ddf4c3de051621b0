"""The seam between what is cached and where: blocks of objects, and which content of an object they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.options import MIB
from ais_tar2tf.stores import Identity

if TYPE_CHECKING:
    from ais_tar2tf.cache._download import Downloads

__all__ = ["BLOCK", "BlockReader", "BlockWriter", "Damaged", "Known", "Place", "Shelf"]

BLOCK = 2 * MIB  # of an object: every range that a reader asks for is made of whole ones


class Damaged(Tar2TFError):
    """A block is not what was written. Never seen outside: the store has the bytes."""


@dataclass(frozen=True, slots=True)
class Known:
    """Which content of an object is here, and when its store said last that it is the object's."""

    identity: Identity
    vouched: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class Place:
    """One block of one content of an object."""

    key: str  # of the object
    identity: Identity
    number: int

    @property
    def start(self) -> int:
        """In the object."""
        return self.number * BLOCK

    @property
    def length(self) -> int:
        assert self.identity.size is not None
        return min(BLOCK, self.identity.size - self.start)


class BlockReader(Protocol):
    def read(self, at: int, buffer: memoryview) -> int:
        """Fill `buffer`, or a part of it, from offset `at` of the block; what is given was checked."""
        ...

    def close(self) -> None: ...


class BlockWriter(Protocol):
    def add(self, data: memoryview) -> None: ...

    def commit(self) -> None:
        """The block is whole: from now on it can be read."""
        ...

    def abort(self) -> None: ...


class Shelf(Protocol):
    """Blocks. Every method but `known`, `has` and `forget` may raise OSError, readers also Damaged."""

    downloads: Downloads  # of this process, to this shelf

    @property
    def bound(self) -> int:
        """In bytes."""
        ...

    def known(self, key: str) -> Known | None: ...

    def vouch(self, key: str, identity: Identity) -> None:
        """The object has this content now."""
        ...

    def forget(self, key: str) -> None:
        """Nothing that is here of this object is to be believed."""
        ...

    def has(self, place: Place) -> bool: ...

    def reader(self, place: Place) -> BlockReader: ...

    def writer(self, place: Place) -> BlockWriter | None:
        """None where there is no room for the block."""
        ...

    def discard(self, place: Place) -> None: ...
