"""Where files are published: a folder or a store. Each has whole files under final names, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ais_tar2tf.errors import ExportError, ShardNotFound, StoreError
from ais_tar2tf.export.work import sync_folder, write_synced
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store, open_store, split_url

__all__ = ["Destination", "Folder", "StorePlace", "place_of", "read_whole"]

_READ = 1 << 20


class Destination(Protocol):
    def url(self, name: str) -> str: ...

    def read(self, name: str) -> bytes | None:
        """A small file's bytes; None when it is not there."""
        ...

    def size(self, name: str) -> int | None: ...

    def names(self, prefix: str) -> Iterator[str]:
        """The files directly here whose names begin with `prefix`."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def take(self, part: Path, name: str) -> None:
        """The file becomes `name`; one that was there is replaced."""
        ...

    def delete(self, name: str) -> None: ...

    def settle(self) -> None:
        """All that was done so far stays done."""
        ...


class Folder:
    """A local folder, on the same file system as the work folder in it."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path

    def url(self, name: str) -> str:
        return os.fspath(self.path / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        if self.path.is_dir():
            yield from sorted(entry.name for entry in os.scandir(self.path) if entry.name.startswith(prefix))

    def write(self, name: str, data: bytes) -> None:
        write_synced(self.path / name, data)

    def take(self, part: Path, name: str) -> None:
        part.replace(self.path / name)

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def settle(self) -> None:
        sync_folder(self.path)


class StorePlace:
    """A prefix in a store: objects appear whole, so a PUT is what a rename is in a folder."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def url(self, name: str) -> str:
        return self._store.url(self._prefix + name)

    def read(self, name: str) -> bytes | None:
        try:
            return read_whole(self._store, self._prefix + name)
        except ShardNotFound:
            return None

    def size(self, name: str) -> int | None:
        try:
            return self._store.head(self._prefix + name).size
        except ShardNotFound:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for info in self._store.list(self._prefix + prefix):
                yield info.name.removeprefix(self._prefix)
        except ShardNotFound:
            return

    def write(self, name: str, data: bytes) -> None:
        self._store.put(self._prefix + name, data)

    def take(self, part: Path, name: str) -> None:
        self._store.put(self._prefix + name, part.read_bytes())
        part.unlink()

    def delete(self, name: str) -> None:
        remove = getattr(self._store, "delete", None)
        if remove is None:
            raise ExportError(f"{self.url(name)}: this store cannot delete; choose an empty place")
        remove(self._prefix + name)

    def settle(self) -> None:
        pass


def place_of(
    where: str | os.PathLike[str], *, read: Read | None = None, endpoint: str | None = None, token: str | None = None
) -> Destination:
    """A folder or a URL."""
    scheme, bucket, name = split_url(os.fspath(where))
    if scheme == "file":
        return Folder(Path(name))
    return StorePlace(open_store(scheme, bucket, read or Read(), endpoint=endpoint, token=token), name)


def read_whole(store: Store, name: str, start: int = 0, stop: int | None = None) -> bytes:
    """The bytes of an object, or of a range of it."""
    body = store.open(name, start, stop)
    try:
        data = bytearray()
        buffer = memoryview(bytearray(_READ))
        skip = start - body.start  # a store that knows no ranges begins at 0
        while stop is None or len(data) < stop - start + skip:
            count = body.readinto(buffer)
            if not count:
                break
            data += buffer[:count]
        found = bytes(data[skip:] if stop is None else data[skip : skip + stop - start])
    finally:
        body.close()
    if stop is not None and len(found) < stop - start:
        raise StoreError(f"the object ends before byte {stop:,}", url=store.url(name))
    return found
