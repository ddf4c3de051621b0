"""The interface of all stores: the `Store` and `Body` protocols, and the `Interrupt` that ends a reader's waits.

Capabilities that only some stores have are in `capabilities.py`. This module must not know any particular store.
"""

from __future__ import annotations

import contextlib
import socket
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ais_tar2tf.base import forking
from ais_tar2tf.stores.identity import Identity

__all__ = ["Body", "Identity", "Interrupt", "ObjectInfo", "Store"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The properties that a store states of one object. `size` is None if the store does not state the size."""

    name: str
    size: int | None
    identity: Identity


class Interrupt:
    """Lets another thread end all waits of a reader: `fire` shuts down the sockets of the reader."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._sockets: set[socket.socket] = set()
        self.fired: bool = False
        self.may_park: bool = False  # whether a cache may keep this reader's open request for a later reader

    def watch(self, sock: socket.socket) -> None:
        """Shut `sock` down when this interrupt fires, or at once if it has fired already."""
        with self._lock:
            self._sockets.add(sock)
            if self.fired:
                _shut_down(sock)

    def forget(self, sock: socket.socket) -> None:
        """Stop watching `sock`."""
        with self._lock:
            self._sockets.discard(sock)

    def fire(self) -> None:
        """End all current and later waits of the reader."""
        with self._lock:
            self.fired = True
            for sock in self._sockets:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the socket may be closed already
        sock.shutdown(socket.SHUT_RDWR)


class Body(Protocol):
    """The bytes of one answer of a store. Closing a body discards the bytes that were not read."""

    info: ObjectInfo  # describes the whole object, also when a range was requested
    start: int  # offset in the object of the first byte that `readinto` returns
    stop: int | None  # offset in the object after the last byte; None if the answer does not state this offset

    @abstractmethod
    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes into `buffer`, which need not become full. Return their number, or 0 at the end.

        Raises:
            TransportError: The connection broke off, or no byte arrived for `Timeouts.idle` seconds.
        """

    @abstractmethod
    def close(self) -> None: ...


class Store(Protocol):
    """One bucket, host or folder. Every store, and every wrapper of a store, derives from this class.

    All errors are StoreErrors that name the object's URL. Names are relative to the bucket, host or folder.
    """

    @abstractmethod
    def url(self, name: str) -> str:
        """Return the URL of an object as users see it, in `__shard__` and in errors: without secrets."""

    def full_url(self, name: str) -> str:
        """Return the URL that opens an object again. It may hold a signature: never show it, and never store it."""
        return self.url(name)

    @abstractmethod
    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        """Request the object's bytes from `start` to `stop`. Nothing is retried.

        If `stop` is None, the range ends with the object. `interrupt` can end the waits of the request and the body.
        The body may begin before `start` and end after `stop`: a server without ranges answers with the whole object.
        """

    @abstractmethod
    def head(self, name: str) -> ObjectInfo:
        """Return the properties that the store states of an object. A failed request is retried."""

    def head_once(self, name: str, *, interrupt: Interrupt | None = None) -> ObjectInfo:
        """Return the same as `head`, without retries if the store allows this. `interrupt` can then end the wait."""
        del interrupt
        return self.head(name)

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose names begin with `prefix`, in the order of their names, page by page."""

    @abstractmethod
    def put(self, name: str, data: bytes | Path) -> None:
        """Write an object completely or not at all. A file is streamed, whatever its size."""

    @abstractmethod
    def move(self, name: str, to: str) -> bool:
        """Rename an object without sending its bytes through this process; return False if the store cannot do so."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete an object; it is no error if there is no such object."""

    @abstractmethod
    def create(self) -> None:
        """Make the bucket or folder; it is no error if it exists already."""

    @abstractmethod
    def close(self) -> None: ...
