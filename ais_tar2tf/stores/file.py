"""The store of file:// and plain paths, which reads and writes local files.

It must not return bytes of a file that was written to after it was opened, and must not leave an incomplete file
under the name of an object.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.base.file_state import FileState
from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError
from ais_tar2tf.stores.base import Identity, Interrupt, ObjectInfo, Store
from ais_tar2tf.stores.capabilities import LocalFiles, SeekableBody

__all__ = ["FileBody", "FileStore", "file_error", "open_file"]


class FileBody(SeekableBody):
    """An open file. It keeps its own offset, so that a forked process and its parent read independently.

    Each read checks the file's state, and raises ObjectChanged if the file was written to since it was opened. If
    another file takes the name of this file, this file is still read to its end, because its bytes do not change.
    """

    def __init__(self, path: Path, name: str, start: int, shown: str) -> None:
        self.content: FileBytes = FileBytes(path, shown)
        self.info = _info(name, self.content.state)
        self.start = start
        self.stop = self.info.size
        self._position = start

    def seek(self, position: int) -> None:
        self._position = position

    def readinto(self, buffer: memoryview) -> int:
        count = self.content.readinto(buffer, self._position)
        self._position += count
        return count

    def close(self) -> None:
        self.__dict__.pop("content", None)  # the file stays open while somebody else refers to its bytes


def _info(name: str, state: FileState) -> ObjectInfo:
    return ObjectInfo(name, state.size, Identity(version=state.version, size=state.size))


class FileStore(Store, LocalFiles):
    """A store over a folder. Names are paths relative to the folder, and must not lead out of it.

    If `folder` is empty, names are paths as users write them, and may lead anywhere.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"FileStore({self._folder or '.'})"

    def url(self, name: str) -> str:
        return str(self.local_path(name))

    def local_path(self, name: str) -> Path:
        if self._folder and name:
            SafeName(name.removesuffix("/"), where=self._folder)
        return Path(self._folder, name)

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> FileBody:
        del stop, interrupt  # unread bytes cost nothing, and reading never waits for a server
        with _file_errors(self.url(name)):
            return FileBody(self.local_path(name), name, start, self.url(name))

    def head(self, name: str) -> ObjectInfo:
        with _file_errors(self.url(name)):
            return _info(name, FileState.from_stat(self.local_path(name).stat()))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the files whose paths begin with `prefix`, folder by folder. Links to folders are not followed.

        Files and folders whose names begin with a dot are left out, unless `prefix` asks for them: `x/.k` lists
        `x/.k.tar`.
        """
        folder, _, start = prefix.rpartition("/")
        folder = f"{folder}/" if prefix.startswith("/") or folder else ""
        yield from self._walk(folder, start)

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a temporary file in the same folder and rename it, so that no incomplete file ever has this name."""
        path = self.local_path(name)
        temporary = path.with_name(f".{secrets.token_hex(8)}.part")
        with _file_errors(self.url(name), _write_error):
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_replaceable(path)
            try:
                if isinstance(data, Path):
                    shutil.copyfile(data, temporary)
                else:
                    temporary.write_bytes(data)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def move(self, name: str, to: str) -> bool:
        with _file_errors(self.url(name)):
            self.local_path(to).parent.mkdir(parents=True, exist_ok=True)
            self.local_path(name).replace(self.local_path(to))
        return True

    def delete(self, name: str) -> None:
        with _file_errors(self.url(name)):
            self.local_path(name).unlink(missing_ok=True)

    def create(self) -> None:
        with _file_errors(self._folder, _write_error):
            Path(self._folder or ".").mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        pass

    def _walk(self, folder: str, start: str) -> Iterator[ObjectInfo]:
        with _file_errors(self.url(folder)):
            try:
                entries = sorted(os.scandir(self.local_path(folder)), key=_listing_order)
            except FileNotFoundError:
                return
        for entry in entries:
            if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
                continue
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(f"{name}/", "")
                continue
            with _file_errors(self.url(name)):
                try:
                    state = FileState.from_stat(entry.stat()) if entry.is_file() else None
                except FileNotFoundError:  # the file was deleted after the scan
                    continue
            if state is not None:
                yield _info(name, state)


def open_file(path: str) -> FileBody:
    """Open a local file by its path, with the errors of `FileStore`."""
    return FileStore().open(path)


def _listing_order(entry: os.DirEntry[str]) -> str:
    """Return the key by which entries sort as in object stores: the name of a folder gets a slash at its end."""
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _check_replaceable(path: Path) -> None:
    """Raise OSError if `path` is a folder, a device or a pipe, because a rename must not replace these by a file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder has this name")
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "this is a device or a pipe, and no file")


def file_error(error: OSError, url: str) -> StoreError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ShardNotFound("there is no such file", url=url)
    if isinstance(error, IsADirectoryError):
        return StoreError("the file system said: this is a folder; end it with '/' to name the files in it", url=url)
    if isinstance(error, PermissionError):
        return AccessDenied("the file may not be read or written", url=url)
    return StoreError(f"the file system said: {error.strerror or error}", url=url)


def _write_error(error: OSError, url: str) -> StoreError:
    """Return the error for a file that cannot be written."""
    if isinstance(error, PermissionError):
        return AccessDenied("nothing may be written there", url=url)
    reason = {errno.EEXIST: "Not a directory"}.get(error.errno or 0, error.strerror or error)
    return StoreError(f"the file system said: {reason}; nothing can be written there", url=url)


@contextlib.contextmanager
def _file_errors(url: str, error_for: Callable[[OSError, str], StoreError] = file_error) -> Generator[None]:
    """Replace an OSError of the block by a StoreError that names `url`. `error_for` makes the StoreError."""
    try:
        yield
    except OSError as error:
        raise error_for(error, url) from error
