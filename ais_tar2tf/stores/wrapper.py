"""`WrapperStore`: the base class of stores that wrap another store and change some calls on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ais_tar2tf.stores.base import Body, Interrupt, ObjectInfo, Store

__all__ = ["WrapperStore"]


class WrapperStore(Store):
    """A store that passes every call on to another store. Subclasses override the calls that they change.

    A wrapper does not pass on the capabilities of the wrapped store, such as MultiRange (see `capabilities.py`). A
    subclass implements each capability that it offers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def url(self, name: str) -> str:
        return self._store.url(name)

    def full_url(self, name: str) -> str:
        return self._store.full_url(name)

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        return self._store.open(name, start, stop, interrupt=interrupt)

    def head(self, name: str) -> ObjectInfo:
        return self._store.head(name)

    def head_once(self, name: str, *, interrupt: Interrupt | None = None) -> ObjectInfo:
        return self._store.head_once(name, interrupt=interrupt)

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
