"""The seam between shards and the places where they live: what a store is, and what it says of an object."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ais_tar2tf import forking
from ais_tar2tf.stores._identity import Identity

__all__ = [
    "Asks",
    "Body",
    "HandsOver",
    "Identity",
    "Interrupt",
    "Keeper",
    "ObjectInfo",
    "Pieces",
    "Ranges",
    "Signed",
    "Store",
    "asked",
    "whole_url",
]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    name: str
    size: int | None
    identity: Identity


class Interrupt:
    """Ends the waits of one reader from another thread, by shutting its sockets down."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._sockets: set[socket.socket] = set()
        self.fired: bool = False
        self.parting: bool = False  # the reader leaves by itself; a cache may keep the request for the next reader

    def watch(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)
            if self.fired:
                _shut_down(sock)

    def forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)

    def fire(self) -> None:
        with self._lock:
            self.fired = True
            for sock in self._sockets:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be closed already
        sock.shutdown(socket.SHUT_RDWR)


class Body(Protocol):
    """The bytes of one answer. Close it; what was not read is given up."""

    info: ObjectInfo  # of the whole object, also when a range was asked for
    start: int  # offset in the object of the first byte that will come
    stop: int | None  # offset behind the last one, where the answer tells

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer`, or a part of it when the rest takes long, and say how much came: 0 at the end.

        Raises TransportError when the answer breaks off, or when nothing comes for `Timeouts.idle` seconds.
        """
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """One bucket, host or folder. Errors are StoreErrors that name the object's URL; `open` tries once."""

    def url(self, name: str) -> str:
        """What users see of the object: in `__shard__`, and in errors."""
        ...

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        """The object's bytes from `start` (to `stop`); a store that knows no ranges answers from 0."""
        ...

    def head(self, name: str) -> ObjectInfo:
        """What it says of the object; where that takes a request, it may be tried again."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, by pages, in the order of their names."""
        ...

    def put(self, name: str, data: bytes | Path) -> None:
        """The object is whole, or not there. A file is streamed, whatever its size."""
        ...

    def move(self, name: str, to: str) -> bool:
        """The object gets another name, its bytes staying where they are; False where the store can't."""
        ...

    def delete(self, name: str) -> None:
        """The object is gone; it may be gone already."""
        ...

    def create(self) -> None:
        """Make the bucket or folder; it may be there already."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Signed(Protocol):
    """A store whose URLs may let their bearer in: `url` shows them without what does."""

    def whole_url(self, name: str) -> str: ...


def whole_url(store: Store, name: str) -> str:
    """Return the URL that opens an object again. It is for programs: never shown, and never stored."""
    return store.whole_url(name) if isinstance(store, Signed) else store.url(name)


@runtime_checkable
class Keeper(Protocol):
    """A store that keeps what it gave, and gives that again."""

    def forget(self, name: str) -> None:
        """What it kept of the object turned out to be of no use."""
        ...


@runtime_checkable
class HandsOver(Protocol):
    """A body whose waits another reader's Interrupt can end from now on."""

    def hand_over(self, interrupt: Interrupt | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """Many ranges that came in one answer, and of which content, where the answer says that."""

    pieces: Sequence[memoryview | None]  # None: this one is to be asked for by itself
    identity: Identity


@runtime_checkable
class Ranges(Protocol):
    """A store that gives many ranges at once."""

    across_objects: bool  # also of different ones

    @property
    def ranges_at_once(self) -> int:
        """In one request; 1 where the server turned out not to give more."""
        ...

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> Pieces | None:
        """The bytes of each (name, start, stop); None where that is to be asked for one by one."""
        ...


@runtime_checkable
class Asks(Protocol):
    """A store whose HEAD is a request, which can go the way of the bodies: tried once, and the wait can be ended."""

    def ask(self, name: str, interrupt: Interrupt | None = None) -> ObjectInfo: ...


def asked(store: Store, name: str, interrupt: Interrupt | None) -> ObjectInfo:
    """What the store says of the object, for who reads it: `fetch` tries again, and `head` would in each try."""
    return store.ask(name, interrupt) if isinstance(store, Asks) else store.head(name)
