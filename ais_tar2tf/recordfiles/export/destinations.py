"""The destinations of exports: folders, and prefixes in stores. A file must appear there complete or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ais_tar2tf.base.documents import folders as owned
from ais_tar2tf.base.documents.folders import Layout
from ais_tar2tf.base.documents.folders import sync as sync_folder
from ais_tar2tf.base.documents.sealed import read_file
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import ExportError, ShardNotFound, UnsafeName
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.options import Limits, Read
from ais_tar2tf.recordfiles.export.journal import write_synced
from ais_tar2tf.stores import ObjectInfo, Store, TokenSource, check_bucket, open_store, split_url

__all__ = ["Destination", "FolderDestination", "StoreDestination", "open_destination"]

_CONCURRENT_DELETES = 8  # enough to hide the latency of a store


class Destination(ABC):
    """A place where files are published. The names of files are relative to the place, and cannot lead out of it."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Return the path or URL of a file."""

    def check(self) -> None:  # noqa: B027
        """Raise `StoreError` if no file can be written because there is no bucket. A folder needs no check."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, or None if it does not exist."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file, or None if it does not exist."""

    @abstractmethod
    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with `prefix`, which may contain the name of a folder and a slash."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of all files in a folder, by names that include the folder's name."""

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """Return the folders whose names begin with `prefix`."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a small file, or replace it."""

    @abstractmethod
    def move_in(self, part: Path, name: str) -> None:
        """Publish the local file `part` as `name`, replacing an existing file. Remove `part`."""

    @abstractmethod
    def move(self, name: str, to: str) -> None:
        """Rename a file to `to`, replacing an existing file."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file if it exists."""

    def claim(self, folder: str, layout: Layout) -> None:  # noqa: B027
        """Create a folder for files of this package, or raise `ExportError` if it belongs to another program.

        This does nothing in a store, which has no folders.
        """

    @abstractmethod
    def delete_folder(self, folder: str, layout: Layout) -> None:
        """Delete the files that `layout` describes in a claimed folder, and then the folder if it is empty."""

    def sync(self, folder: str = "") -> None:  # noqa: B027
        """Make sure that the names of new files, here or in `folder`, survive a crash. A store needs no sync."""


class FolderDestination(Destination):
    """A local folder. It contains the work folder of the export, so that files can be renamed."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path: Path = path
        self._max_bytes = (limits or Limits()).document_bytes

    def _path(self, name: str) -> Path:
        return self.path / SafeName(name, where=os.fspath(self.path))

    def url(self, name: str) -> str:
        return os.fspath(self.path / name)

    def read(self, name: str) -> bytes | None:
        try:
            return read_file(self._path(name), most=self._max_bytes, limit="document_bytes", fail=ExportError)
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

    def move_in(self, part: Path, name: str) -> None:
        part.replace(self._path(name))

    def move(self, name: str, to: str) -> None:
        self._path(name).replace(self._path(to))

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def claim(self, folder: str, layout: Layout) -> None:
        owned.claim(self._path(folder), layout, fail=ExportError)

    def delete_folder(self, folder: str, layout: Layout) -> None:
        owned.remove(self._path(folder), layout, fail=ExportError)

    def sync(self, folder: str = "") -> None:
        sync_folder(self.path / folder)


class StoreDestination(Destination):
    """A prefix in a store. Objects appear there complete, so an upload has the effect of a rename in a folder."""

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

    def move_in(self, part: Path, name: str) -> None:
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

    def delete_folder(self, folder: str, layout: Layout) -> None:
        ours = (name for name in self.sizes(folder) if layout.files.fullmatch(name.removeprefix(f"{folder}/")))
        with ThreadPoolExecutor(_CONCURRENT_DELETES) as pool:
            for _ in pool.map(self.delete, ours):
                pass


def _download(store: Store, name: str, path: Path, read: Read) -> None:
    with contextlib.closing(Fetcher(store, iter([ShardRange(name)]), read, Account())) as fetch:
        fetch.next_shard()
        with path.open("wb") as file:
            while block := fetch.read():
                file.write(block)


def open_destination(
    where: str | os.PathLike[str],
    *,
    read: Read | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> Destination:
    """Return the destination at a folder or a URL."""
    scheme, bucket, name = split_url(location_text(where))
    read = read or Read()
    if scheme == "file":
        return FolderDestination(Path(name), read.limits)
    return StoreDestination(open_store(scheme, bucket, read, endpoint=endpoint, token=token), name, read)
