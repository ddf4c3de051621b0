"""Where files are published: a folder or a store. Each has whole files under final names, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ShardNotFound, StoreError
from ais_tar2tf.export.work import sync, write_synced
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store, open_store, split_url

__all__ = ["Destination", "Folder", "StorePlace", "place_of", "read_whole"]

_READ = 1 << 20
_DELETED_AT_ONCE = 8  # enough to hide a store's distance


class Destination(Protocol):
    def url(self, name: str) -> str: ...

    def read(self, name: str) -> bytes | None:
        """A small file's bytes; None when it is not there."""
        ...

    def size(self, name: str) -> int | None: ...

    def names(self, prefix: str) -> Iterator[str]:
        """The files whose names begin with `prefix`: those directly here, or in the folder that it names."""
        ...

    def sizes(self, folder: str) -> dict[str, int | None]:
        """Of every file in a folder here, by its name with the folder's."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The folders directly here whose names begin with `prefix`."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def take(self, part: Path, name: str) -> None:
        """The file becomes `name`; one that was there is replaced."""
        ...

    def move(self, name: str, to: str) -> None:
        """A file here gets another name; one that has it is replaced."""
        ...

    def delete(self, name: str) -> None: ...

    def delete_folder(self, folder: str) -> None:
        """With all that is in it."""
        ...

    def settle(self, folder: str = "") -> None:
        """All that was done so far here, or in that folder, stays done."""
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
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        folder, separator, start = prefix.rpartition("/")
        if (self.path / folder).is_dir():
            found = sorted(entry.name for entry in os.scandir(self.path / folder) if entry.name.startswith(start))
            yield from (f"{folder}{separator}{name}" for name in found)

    def sizes(self, folder: str) -> dict[str, int | None]:
        if not (self.path / folder).is_dir():
            return {}
        files = (entry for entry in os.scandir(self.path / folder) if entry.is_file(follow_symlinks=False))
        return {f"{folder}/{entry.name}": entry.stat().st_size for entry in files}

    def folders(self, prefix: str) -> list[str]:
        return [name for name in self.names(prefix) if (self.path / name).is_dir()]

    def write(self, name: str, data: bytes) -> None:
        write_synced(self.path / name, data)

    def take(self, part: Path, name: str) -> None:
        part.replace(self.path / name)

    def move(self, name: str, to: str) -> None:
        (self.path / name).replace(self.path / to)

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self.path / folder, ignore_errors=True)

    def settle(self, folder: str = "") -> None:
        sync(self.path / folder)


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

    def sizes(self, folder: str) -> dict[str, int | None]:
        try:
            found = self._store.list(f"{self._prefix}{folder}/")
            return {info.name.removeprefix(self._prefix): info.size for info in found}
        except ShardNotFound:
            return {}

    def folders(self, prefix: str) -> list[str]:
        below = (name.partition("/") for name in self.names(prefix))
        return sorted({folder for folder, slash, _ in below if slash})

    def write(self, name: str, data: bytes) -> None:
        self._store.put(self._prefix + name, data)

    def take(self, part: Path, name: str) -> None:
        self._store.put(self._prefix + name, part)
        part.unlink()

    def move(self, name: str, to: str) -> None:
        if self._store.move(self._prefix + name, self._prefix + to):
            return
        with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
            copy = Path(folder) / "file"
            _download(self._store, self._prefix + name, copy)
            self._store.put(self._prefix + to, copy)
        self.delete(name)

    def delete(self, name: str) -> None:
        self._store.delete(self._prefix + name)

    def delete_folder(self, folder: str) -> None:
        with ThreadPoolExecutor(_DELETED_AT_ONCE) as pool:
            for _ in pool.map(self.delete, self.sizes(folder)):
                pass

    def settle(self, folder: str = "") -> None:
        pass


def _download(store: Store, name: str, path: Path) -> None:
    fetch = Fetch(store, iter([Span(name)]), Read(), Account())
    try:
        fetch.next_shard()
        with path.open("wb") as file:
            while block := fetch.read():
                file.write(block)
    finally:
        fetch.close()


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
