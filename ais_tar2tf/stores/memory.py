"""memory:// — shards held by this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xxhash

from ais_tar2tf import forking
from ais_tar2tf.errors import ShardNotFound
from ais_tar2tf.names import check_object_name
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo

__all__ = ["MemoryStore"]


class _Buckets:
    """All there are in this process, under one lock."""

    def __init__(self) -> None:
        self.lock = forking.lock()
        self.objects: dict[str, dict[str, tuple[bytes, ObjectInfo]]] = {}


_buckets = _Buckets()


class _MemoryBody:
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


class MemoryStore:
    """One bucket in this process; every MemoryStore of the same name sees the same objects."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def __repr__(self) -> str:
        return f"MemoryStore({self._bucket})"

    def url(self, name: str) -> str:
        return f"memory://{self._bucket}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> _MemoryBody:
        del stop, interrupt
        data, info = self._object(name)
        return _MemoryBody(data, info, start)

    def head(self, name: str) -> ObjectInfo:
        return self._object(name)[1]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with _buckets.lock:
            found = sorted(name for name in _buckets.objects.get(self._bucket, {}) if name.startswith(prefix))
        for name in found:
            yield self.head(name)

    def put(self, name: str, data: bytes | Path) -> None:
        check_object_name(name, url=self.url(name))
        data = data.read_bytes() if isinstance(data, Path) else data
        checksum = f"xxhash2:{xxhash.xxh64_hexdigest(data)}"
        with _buckets.lock:
            bucket = _buckets.objects.setdefault(self._bucket, {})
            version = int(bucket[name][1].identity.version) + 1 if name in bucket else 1
            identity = Identity(version=str(version), checksum=checksum, size=len(data))
            bucket[name] = (bytes(data), ObjectInfo(name, len(data), identity))

    def move(self, name: str, to: str) -> bool:
        check_object_name(to, url=self.url(to))
        self.put(to, self._object(name)[0])
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        check_object_name(name, url=self.url(name))
        with _buckets.lock:
            _buckets.objects.get(self._bucket, {}).pop(name, None)

    def create(self) -> None:
        with _buckets.lock:
            _buckets.objects.setdefault(self._bucket, {})

    def close(self) -> None:
        pass

    def _object(self, name: str) -> tuple[bytes, ObjectInfo]:
        check_object_name(name, url=self.url(name))
        with _buckets.lock:
            found = _buckets.objects.get(self._bucket, {}).get(name)
        if found is None:
            raise ShardNotFound("there is no such object", url=self.url(name))
        return found
