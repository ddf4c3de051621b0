"""file:// and plain paths — shards in a folder."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ais_tar2tf.errors import AccessDenied, ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.names import SafeName
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores._file_state import FileState

__all__ = ["FileBody", "FileStore", "translated"]


class FileBody:
    """One open file. It keeps its own position, so that a forked process reads on independently of its parent.

    Each read looks at the file's state, and is an error when somebody wrote to the file since it was opened. A file
    that another one replaced under its name is read to its end: its bytes stay as they were.
    """

    def __init__(self, path: Path, name: str, start: int, shown: str) -> None:
        self._shown = shown
        self._file = path.open("rb", buffering=0)
        self.state: FileState = self._state_now()
        self.info = _info(name, self.state)
        self.start = start
        self.stop = self.info.size
        self._at = start

    def seek(self, position: int) -> None:
        """Go on there."""
        self._at = position

    def readinto(self, buffer: memoryview) -> int:
        try:
            count = os.preadv(self._file.fileno(), [buffer], self._at)
        except OSError as error:
            raise TransportError(f"reading failed ({error})", url=self._shown) from error
        self.check()
        self._at += count
        return count

    def check(self) -> None:
        """Raise ObjectChanged if somebody wrote to the file since it was opened."""
        now = self._state_now()
        if now != self.state and (difference := self.state.difference(now)):
            raise ObjectChanged(
                f"the file was written to while it was read: {difference}; start this shard again", url=self._shown
            )

    def close(self) -> None:
        self._file.close()

    def _state_now(self) -> FileState:
        return FileState.of(os.fstat(self._file.fileno()))


def _info(name: str, state: FileState) -> ObjectInfo:
    return ObjectInfo(name, state.size, Identity(version=state.version, size=state.size))


class FileStore:
    """A folder; names are paths in it, and none leaves it. Without one, names are paths as the user wrote them."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"FileStore({self._folder or '.'})"

    def url(self, name: str) -> str:
        return str(self._path(name))

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> FileBody:
        del stop, interrupt  # what is not read costs nothing, and a file doesn't wait for anybody
        try:
            return FileBody(self._path(name), name, start, self.url(name))
        except OSError as error:
            raise translated(error, self.url(name)) from error

    def head(self, name: str) -> ObjectInfo:
        try:
            return _info(name, FileState.of(self._path(name).stat()))
        except OSError as error:
            raise translated(error, self.url(name)) from error

    def is_folder(self, name: str) -> bool:
        """Return whether a folder has this name."""
        return self._path(name).is_dir()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Folder by folder, each in order; links to folders are not followed."""
        folder, _, start = prefix.rpartition("/")
        folder = f"{folder}/" if prefix.startswith("/") or folder else ""
        yield from self._walk(folder, start)

    def put(self, name: str, data: bytes | Path) -> None:
        """Written beside, then renamed: no partial file has the name."""
        path = self._path(name)
        beside = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_replaceable(path)
            try:
                if isinstance(data, Path):
                    shutil.copyfile(data, beside)
                else:
                    beside.write_bytes(data)
                beside.replace(path)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _unwritable(error, self.url(name)) from error

    def move(self, name: str, to: str) -> bool:
        try:
            self._path(to).parent.mkdir(parents=True, exist_ok=True)
            self._path(name).replace(self._path(to))
        except OSError as error:
            raise translated(error, self.url(name)) from error
        return True

    def delete(self, name: str) -> None:
        try:
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise translated(error, self.url(name)) from error

    def create(self) -> None:
        try:
            Path(self._folder or ".").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(error, self._folder) from error

    def close(self) -> None:
        pass

    def _path(self, name: str) -> Path:
        if self._folder and name:
            SafeName(name.removesuffix("/"), where=self._folder)
        return Path(self._folder, name)

    def _walk(self, folder: str, start: str) -> Iterator[ObjectInfo]:
        try:
            entries = sorted(os.scandir(self._path(folder)), key=_listing_order)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translated(error, self.url(folder)) from error
        for entry in entries:
            if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
                continue
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(f"{name}/", "")
                continue
            try:
                state = FileState.of(entry.stat()) if entry.is_file() else None
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                raise translated(error, self.url(name)) from error
            if state is not None:
                yield _info(name, state)


def _listing_order(entry: os.DirEntry[str]) -> str:
    """As object stores order names: a folder's contents stand where `folder/` does."""
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _check_replaceable(path: Path) -> None:
    """Refuse a name that is a folder or a device: a rename would put a file in the device's place."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder has this name")
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "this is a device or a pipe, and no file")


def _unwritable(error: OSError, url: str) -> StoreError:
    """The error for a file that cannot be written: `translated` is about one that cannot be read."""
    if isinstance(error, PermissionError):
        return AccessDenied("nothing may be written there", url=url)
    reason = {errno.EEXIST: "Not a directory"}.get(error.errno or 0, error.strerror or error)
    return StoreError(f"the file system said: {reason}; nothing can be written there", url=url)


def translated(error: OSError, url: str) -> StoreError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ShardNotFound("there is no such file", url=url)
    if isinstance(error, IsADirectoryError):
        return StoreError("the file system said: this is a folder; end it with '/' to name the files in it", url=url)
    if isinstance(error, PermissionError):
        return AccessDenied("the file may not be read or written", url=url)
    return StoreError(f"the file system said: {error.strerror or error}", url=url)
