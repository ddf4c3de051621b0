"""Where files are published: a folder or a store. Each has whole files under final names, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from ais_tar2tf import owned
from ais_tar2tf.account import Account
from ais_tar2tf.documents import read_file
from ais_tar2tf.errors import ExportError, ShardNotFound, UnsafeName
from ais_tar2tf.export.work import write_synced
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.locations import location_text
from ais_tar2tf.names import SafeName
from ais_tar2tf.options import Limits, Read
from ais_tar2tf.owned import Layout, sync
from ais_tar2tf.stores import ObjectInfo, Store, TokenSource, check_bucket, open_store, split_url

__all__ = ["Destination", "Folder", "StorePlace", "place_of"]

_READ = 1 << 20
_DELETED_AT_ONCE = 8  # enough to hide a store's distance


class Destination(Protocol):
    def url(self, name: str) -> str: ...

    def check(self) -> None:
        """Raise where nothing can be written, for want of a bucket."""
        ...

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

    def claim(self, folder: str, layout: Layout) -> None:
        """Make a folder here ours, where a place has folders; `ExportError` where another one has its name."""
        ...

    def delete_folder(self, folder: str, layout: Layout) -> None:
        """Delete what `layout` describes in a folder of ours, and the folder where nothing else is left."""
        ...

    def settle(self, folder: str = "") -> None:
        """All that was done so far here, or in that folder, stays done."""
        ...


class Folder:
    """A local folder, on the same file system as the work folder in it. No name leads out of it."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path: Path = path
        self._most = (limits or Limits()).document_bytes

    def _path(self, name: str) -> Path:
        return self.path / SafeName(name, where=os.fspath(self.path))

    def url(self, name: str) -> str:
        return os.fspath(self.path / name)

    def check(self) -> None:
        pass  # folders are made

    def read(self, name: str) -> bytes | None:
        try:
            return read_file(self._path(name), most=self._most, limit="document_bytes", fail=ExportError)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        try:
            return self._path(name).stat().st_size
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
        write_synced(self._path(name), data)

    def take(self, part: Path, name: str) -> None:
        part.replace(self._path(name))

    def move(self, name: str, to: str) -> None:
        self._path(name).replace(self._path(to))

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def claim(self, folder: str, layout: Layout) -> None:
        owned.claim(self._path(folder), layout, fail=ExportError)

    def delete_folder(self, folder: str, layout: Layout) -> None:
        owned.remove(self._path(folder), layout, fail=ExportError)

    def settle(self, folder: str = "") -> None:
        sync(self.path / folder)


class StorePlace:
    """A prefix in a store, which no name leaves: objects appear whole, so a PUT is what a rename is in a folder."""

    def __init__(self, store: Store, prefix: str, read: Read | None = None) -> None:
        self._store = store
        self._read = read or Read()
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def _name(self, name: str) -> str:
        return self._prefix + SafeName(name, where=self.url(""))

    def url(self, name: str) -> str:
        return self._store.url(self._prefix + name)

    def check(self) -> None:
        check_bucket(self._store, self._prefix)

    def read(self, name: str) -> bytes | None:
        try:
            return fetch_whole(self._store, self._name(name), self._read, limit="document_bytes")
        except ShardNotFound:
            return None

    def size(self, name: str) -> int | None:
        try:
            return self._store.head(self._name(name)).size
        except ShardNotFound:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        return (info.name.removeprefix(self._prefix) for info in self._infos(prefix))

    def sizes(self, folder: str) -> dict[str, int | None]:
        return {info.name.removeprefix(self._prefix): info.size for info in self._infos(f"{folder}/")}

    def _infos(self, prefix: str) -> Iterator[ObjectInfo]:
        begin = self._prefix + prefix
        try:
            for info in self._store.list(begin):
                if not info.name.startswith(begin):
                    raise UnsafeName(f"the listing of {self.url(prefix)} holds {info.name!r}, which stands elsewhere")
                yield info
        except ShardNotFound:
            return

    def folders(self, prefix: str) -> list[str]:
        below = (name.partition("/") for name in self.names(prefix))
        return sorted({folder for folder, slash, _ in below if slash})

    def write(self, name: str, data: bytes) -> None:
        self._store.put(self._name(name), data)

    def take(self, part: Path, name: str) -> None:
        self._store.put(self._name(name), part)
        part.unlink()

    def move(self, name: str, to: str) -> None:
        if self._store.move(self._name(name), self._name(to)):
            return
        with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
            copy = Path(folder) / "file"
            _download(self._store, self._name(name), copy, self._read)
            self._store.put(self._name(to), copy)
        self.delete(name)

    def delete(self, name: str) -> None:
        self._store.delete(self._name(name))

    def claim(self, folder: str, layout: Layout) -> None:
        pass  # a prefix is no folder: what is deleted below it has names of ours

    def delete_folder(self, folder: str, layout: Layout) -> None:
        ours = (name for name in self.sizes(folder) if layout.files.fullmatch(name.removeprefix(f"{folder}/")))
        with ThreadPoolExecutor(_DELETED_AT_ONCE) as pool:
            for _ in pool.map(self.delete, ours):
                pass

    def settle(self, folder: str = "") -> None:
        pass


def _download(store: Store, name: str, path: Path, read: Read) -> None:
    fetch = Fetch(store, iter([Span(name)]), read, Account())
    try:
        fetch.next_shard()
        with path.open("wb") as file:
            while block := fetch.read():
                file.write(block)
    finally:
        fetch.close()


def place_of(
    where: str | os.PathLike[str],
    *,
    read: Read | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> Destination:
    """A folder or a URL."""
    scheme, bucket, name = split_url(location_text(where))
    read = read or Read()
    if scheme == "file":
        return Folder(Path(name), read.limits)
    return StorePlace(open_store(scheme, bucket, read, endpoint=endpoint, token=token), name, read)
