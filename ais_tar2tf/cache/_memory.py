"""Blocks in this process's memory, bounded in bytes; the longest unused go first."""

from __future__ import annotations

import time
from collections import OrderedDict

from ais_tar2tf import forking
from ais_tar2tf.cache._download import Downloads
from ais_tar2tf.cache._shelf import Known, Place
from ais_tar2tf.stores import Identity

__all__ = ["MemoryShelf"]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, at: int, buffer: memoryview) -> int:
        piece = memoryview(self._data)[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        pass


class _Writer:
    def __init__(self, shelf: MemoryShelf, place: Place) -> None:
        self._shelf = shelf
        self._place = place
        self._data = bytearray()

    def add(self, data: memoryview) -> None:
        self._data += data

    def commit(self) -> None:
        self._shelf.put(self._place, bytes(self._data))

    def abort(self) -> None:
        self._data.clear()


class MemoryShelf:
    def __init__(self, bound: int) -> None:
        self.bound: int = bound
        self._lock = forking.lock()
        self._known: dict[str, Known] = {}
        self._blocks: OrderedDict[Place, bytes] = OrderedDict()
        self._size = 0
        self.downloads: Downloads = Downloads()
        forking.at_fork(self)

    def forked(self) -> None:
        """The size may have been half way between two blocks."""
        self._size = sum(map(len, self._blocks.values()))

    def known(self, key: str) -> Known | None:
        with self._lock:
            return self._known.get(key)

    def vouch(self, key: str, identity: Identity) -> None:
        with self._lock:
            self._known[key] = Known(identity, time.time())

    def forget(self, key: str) -> None:
        with self._lock:
            self._known.pop(key, None)
            for place in [place for place in self._blocks if place.key == key]:
                self._size -= len(self._blocks.pop(place))

    def has(self, place: Place) -> bool:
        with self._lock:
            return place in self._blocks

    def reader(self, place: Place) -> _Reader:
        with self._lock:
            data = self._blocks.get(place)
            if data is None:
                raise FileNotFoundError(place.key)
            self._blocks.move_to_end(place)
            return _Reader(data)

    def writer(self, place: Place) -> _Writer | None:
        return _Writer(self, place) if place.length <= self.bound else None

    def discard(self, place: Place) -> None:
        with self._lock:
            self._size -= len(self._blocks.pop(place, b""))

    def put(self, place: Place, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._blocks.pop(place, b""))
            self._blocks[place] = data
            while self._size > self.bound:
                _, dropped = self._blocks.popitem(last=False)
                self._size -= len(dropped)
