"""The store memory://, for tests and notebooks. It holds objects in the memory of this process.

The objects are lost when the process ends, and other processes cannot see them. This module must not write to a disk
or a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xxhash

from ais_tar2tf.base import forking
from ais_tar2tf.base.urls.names import check_object_name
from ais_tar2tf.errors import ShardNotFound
from ais_tar2tf.stores.base import Body, Identity, Interrupt, ObjectInfo, Store

__all__ = ["BytesBody", "MemoryStore"]

_lock = forking.lock()
_buckets: dict[str, dict[str, tuple[bytes, ObjectInfo]]] = {}
"""The objects of all buckets of this process."""


class BytesBody(Body):
    """The bytes of an object in memory, from `start` to the end of the object."""

    def __init__(self, data: bytes, info: ObjectInfo, start: int) -> None:
        self.info = info
        self.start = start
        self.stop = self.info.size
        self._data = memoryview(data)[start:]

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        self._data.release()


class MemoryStore(Store):
    """One bucket in this process. All instances with the same bucket name share the bucket's objects."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def __repr__(self) -> str:
        return f"MemoryStore({self._bucket})"

    def url(self, name: str) -> str:
        return f"memory://{self._bucket}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> BytesBody:
        del stop, interrupt
        data, info = self._object(name)
        return BytesBody(data, info, start)

    def head(self, name: str) -> ObjectInfo:
        return self._object(name)[1]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with _lock:
            names = sorted(name for name in _buckets.get(self._bucket, {}) if name.startswith(prefix))
        for name in names:
            found = self._find(name)
            if found is not None:  # otherwise it was deleted during the listing
                yield found[1]

    def put(self, name: str, data: bytes | Path) -> None:
        check_object_name(name, url=self.url(name))
        data = data.read_bytes() if isinstance(data, Path) else data
        checksum = f"xxhash2:{xxhash.xxh64_hexdigest(data)}"
        with _lock:
            bucket = _buckets.setdefault(self._bucket, {})
            version = int(bucket[name][1].identity.version) + 1 if name in bucket else 1
            identity = Identity(version=str(version), checksum=checksum, size=len(data))
            bucket[name] = (bytes(data), ObjectInfo(name, len(data), identity))

    def move(self, name: str, to: str) -> bool:
        check_object_name(to, url=self.url(to))
        data, _ = self._object(name)
        if to != name:
            self.put(to, data)
            self.delete(name)
        return True

    def delete(self, name: str) -> None:
        check_object_name(name, url=self.url(name))
        with _lock:
            _buckets.get(self._bucket, {}).pop(name, None)

    def create(self) -> None:
        with _lock:
            _buckets.setdefault(self._bucket, {})

    def close(self) -> None:
        pass

    def _object(self, name: str) -> tuple[bytes, ObjectInfo]:
        check_object_name(name, url=self.url(name))
        found = self._find(name)
        if found is None:
            raise ShardNotFound("there is no such object", url=self.url(name))
        return found

    def _find(self, name: str) -> tuple[bytes, ObjectInfo] | None:
        with _lock:
            return _buckets.get(self._bucket, {}).get(name)
