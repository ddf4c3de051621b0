"""List and read the files in a folder for `pack`.

This module must not read a file outside the folder, unless the caller allows it to follow links that lead there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError, UnsafeName
from ais_tar2tf.recordfiles.packing.left_out import LeftOut, Reason
from ais_tar2tf.records import SYSTEM_FILES

__all__ = ["ConfinedFolder", "FolderListing"]

_SYSTEM_FOLDERS = frozenset(
    {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found", "__pycache__"}
)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening never waits, not even for a pipe


@dataclass(slots=True)
class FolderListing:
    """The files and sub-folders of one folder, in no particular order."""

    path: str  # the folder's path below the root, with '/' between its parts; "" is the root
    files: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])  # names and sizes
    folders: list[str] = field(default_factory=list[str])
    links: list[str] = field(default_factory=list[str])  # names of links to folders, if these links are not followed


class ConfinedFolder:
    """A folder, the *root*, whose files are listed and read by their paths below it.

    A path that leads out of the root is refused, unless `follow_links` is true.

    Args:
        root: The folder. The folder itself may be a link.
        follow_links: Whether links to files and folders are followed, wherever they lead. If not, only links to files
            below the root are followed.
    """

    def __init__(self, root: str | os.PathLike[str], *, follow_links: bool = False) -> None:
        self.root: Path = Path(root)
        self._follow = follow_links
        self._real = os.path.realpath(root)

    def list(self, path: str, left_out: LeftOut) -> FolderListing:
        """Return the listing of the folder `path`.

        Some entries are counted in `left_out` instead of being listed as files or folders: hidden files and folders,
        files and folders that operating systems create, links that are not followed, links to nothing, and entries
        that are neither files nor folders.
        """
        listing = FolderListing(path)
        where = os.path.join(self.root, path)  # noqa: PTH118
        try:
            with os.scandir(where) as entries:
                for entry in entries:
                    self._add(entry, listing, left_out)
        except OSError as error:
            raise _store_error(error, where) from error
        return listing

    def walk(self, left_out: LeftOut) -> Iterator[FolderListing]:
        """Yield the listings of the root and of all folders below it. Each folder comes before its sub-folders.

        The files of a listing are sorted. A link that leads back to a folder above it is counted in `left_out`.
        """
        waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
        while waiting:
            path, ancestors = waiting.pop()
            identity = self.identity(path)
            if identity in ancestors:
                left_out.add(Reason.LINK, path)
                continue
            listing = self.list(path, left_out)
            listing.files.sort()
            yield listing
            sub_folders = sorted(listing.folders, reverse=True)
            waiting += [(f"{path}/{name}".lstrip("/"), ancestors | {identity}) for name in sub_folders]

    def identity(self, path: str) -> tuple[int, int]:
        """Return the device and inode of the folder `path`. All paths to one folder have the same identity."""
        where = os.path.join(self.root, path)  # noqa: PTH118
        try:
            status = os.stat(where)  # noqa: PTH116
        except OSError as error:
            raise _store_error(error, where) from error
        return status.st_dev, status.st_ino

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the bytes of the file `name`.

        Raises:
            UnsafeName: The path leads out of the root, and `follow_links` is false.
            StoreError: The file is missing, is no regular file, may not be read, or is larger than `max_bytes`
                (`Limits.member_bytes`).
        """
        path = os.path.join(self.root, name)  # noqa: PTH118  # Path takes three times as long
        try:
            descriptor = os.open(self._resolve(path, name), _FLAGS if self._follow else _FLAGS | os.O_NOFOLLOW)
            return _read_regular(descriptor, path, max_bytes)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise _store_error(error, path) from error

    def size(self, name: str) -> int:
        """Return the size of the file `name` in bytes; raise the same errors as `read`."""
        path = os.path.join(self.root, name)  # noqa: PTH118
        try:
            status = os.stat(self._resolve(path, name))  # noqa: PTH116
        except OSError as error:
            raise _store_error(error, path) from error
        if not stat.S_ISREG(status.st_mode):
            raise ShardNotFound("there is no such file", url=path)
        return status.st_size

    def path_of(self, name: str) -> Path:
        """Return the path of the file `name` with its links resolved.

        Raises:
            UnsafeName: The path leads out of the root, and `follow_links` is false.
        """
        return Path(self._resolve(os.path.join(self.root, name), name))  # noqa: PTH118

    def _resolve(self, path: str, name: str) -> str:
        """Return `path` with its links resolved; raise UnsafeName if it leads out of the root.

        If `follow_links` is true, return `path` unchanged and unchecked.
        """
        if self._follow:
            return path
        real = os.path.realpath(path)
        if not self._is_inside(real):
            raise UnsafeName(
                f"{path}: {name!r} leads out of {self.root}, to {real}; follow_links=True (--follow-links) packs it"
            )
        return real

    def _is_inside(self, real: str) -> bool:
        """Return whether a path without links is below the root."""
        return real.startswith(self._real.rstrip("/") + "/")

    def _add(self, entry: os.DirEntry[str], listing: FolderListing, left_out: LeftOut) -> None:
        """Add one entry of a folder to its listing, or to `left_out`."""
        name = f"{listing.path}/{entry.name}".lstrip("/")
        if entry.is_symlink() and not self._accepts_link(entry, name, listing, left_out):
            return
        if entry.is_dir():
            if entry.name.startswith(".") or entry.name.lower() in _SYSTEM_FOLDERS:
                left_out.add(Reason.HIDDEN, f"{name}/")
            else:
                listing.folders.append(entry.name)
        elif not entry.is_file():
            left_out.add(Reason.SPECIAL, name)
        elif entry.name.startswith(".") or entry.name.lower() in SYSTEM_FILES:
            left_out.add(Reason.HIDDEN, name)
        else:
            listing.files.append((entry.name, entry.stat().st_size))

    def _accepts_link(self, entry: os.DirEntry[str], name: str, listing: FolderListing, left_out: LeftOut) -> bool:
        """Return whether a link is followed. If it is not, count it in `left_out`."""
        if not os.path.exists(entry.path):  # noqa: PTH110
            left_out.add(Reason.BROKEN_LINK, name)
        elif self._follow or (entry.is_file() and self._is_inside(os.path.realpath(entry.path))):
            return True
        else:
            left_out.add(Reason.LINK, name)
            if entry.is_dir() and not entry.name.startswith("."):
                listing.links.append(entry.name)
        return False


def _read_regular(descriptor: int, path: str, max_bytes: int) -> bytes:
    """Return the bytes of an open file, and close it. Another process may change the file at the same time."""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ShardNotFound("there is no such file", url=path)
        size, data = status.st_size, b""
        if size <= max_bytes:
            data = file.read(size + 1)
        if len(data) > size:  # the file has grown
            data += file.read(max_bytes - size)
            size = len(data)
        if size > max_bytes:
            raise StoreError(f"the file has {size:,} bytes, more than Limits.member_bytes, {max_bytes:,}", url=path)
        return data


def _store_error(error: OSError, path: str) -> StoreError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ShardNotFound("there is no such file or folder", url=path)
    if isinstance(error, PermissionError):
        return AccessDenied("it may not be read", url=path)
    return StoreError(f"the file system said: {error.strerror or error}", url=path)
