"""The base of stores that stand in front of another store, such as a cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ais_tar2tf.stores._base import Body, Interrupt, ObjectInfo, Store, whole_url

__all__ = ["WrapperStore"]


class WrapperStore:
    """A store that passes every call on to another store. Subclasses override the calls that they change.

    Capabilities of the inner store, such as reading many ranges at once, are not passed on: a subclass that keeps
    one declares it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def url(self, name: str) -> str:
        return self._store.url(name)

    def whole_url(self, name: str) -> str:
        """Return the URL that opens an object again; it may let its bearer in."""
        return whole_url(self._store, name)

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        return self._store.open(name, start, stop, interrupt=interrupt)

    def head(self, name: str) -> ObjectInfo:
        return self._store.head(name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def put(self, name: str, data: bytes | Path) -> None:
        self._store.put(name, data)

    def move(self, name: str, to: str) -> bool:
        return self._store.move(name, to)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def create(self) -> None:
        self._store.create()

    def close(self) -> None:
        self._store.close()
