"""List and read what is in a folder. Links never lead out of the folder unless the caller allows it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError, UnsafeName
from ais_tar2tf.packing.left_out import BROKEN_LINK, HIDDEN, LINK, SPECIAL, LeftOut
from ais_tar2tf.records import SYSTEM_FILES

__all__ = ["Confined", "Listing"]

_SYSTEM_FOLDERS = frozenset(
    {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found", "__pycache__"}
)


@dataclass(slots=True)
class Listing:
    """One folder: its files with their sizes, and its sub-folders, in no order."""

    path: str  # below the root, with '/' between its parts; "" is the root
    files: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    folders: list[str] = field(default_factory=list[str])
    links: list[str] = field(default_factory=list[str])  # to folders, which are not followed


class Confined:
    """A folder whose files are read by their names below it, and nothing beyond it.

    Args:
        root: The folder. It may be a link itself.
        follow_links: Follow links to files and folders, wherever they lead. Without it a link to a folder is not
            followed, and a link to a file only when that file lies below the root.
    """

    def __init__(self, root: str | os.PathLike[str], *, follow_links: bool = False) -> None:
        self.root: Path = Path(root)
        self._follow = follow_links
        self._real = os.path.realpath(root)

    def list(self, path: str, left_out: LeftOut) -> Listing:
        """Return what is in a folder below the root; note in `left_out` what is not taken.

        Hidden files and folders, those that operating systems make, and links out of the root are left out.
        """
        listing = Listing(path)
        where = os.path.join(self.root, path)  # noqa: PTH118
        try:
            with os.scandir(where) as entries:
                for entry in entries:
                    self._note(entry, listing, left_out)
        except OSError as error:
            raise _translated(error, where) from error
        return listing

    def walk(self, left_out: LeftOut) -> Iterator[Listing]:
        """Yield every folder with its files in order, each folder before those in it."""
        waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
        while waiting:
            path, above = waiting.pop()
            identity = self.identity(path)
            if identity in above:
                left_out.add(LINK, path)
                continue
            listing = self.list(path, left_out)
            listing.files.sort()
            yield listing
            below = sorted(listing.folders, reverse=True)
            waiting += [(f"{path}/{each}".lstrip("/"), above | {identity}) for each in below]

    def identity(self, path: str) -> tuple[int, int]:
        """Return what tells a folder from others, by whatever path it is reached."""
        where = os.path.join(self.root, path)  # noqa: PTH118
        try:
            status = os.stat(where)  # noqa: PTH116
        except OSError as error:
            raise _translated(error, where) from error
        return status.st_dev, status.st_ino

    def read(self, name: str, most: int) -> bytes:
        """Return the bytes of a file, of which there may be at most `most`.

        Raises:
            UnsafeName: The file is a link out of the folder, and links are not followed.
            StoreError: The file is missing, may not be read, or has more than `most` bytes (`Limits.member_bytes`).
        """
        path = os.path.join(self.root, name)  # noqa: PTH118  # a third of Path's time, for each file
        try:
            with open(self._opened(path, name), "rb", buffering=0) as file:  # noqa: PTH123  # a descriptor
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    raise StoreError(
                        f"the file has {size:,} bytes, more than Limits.member_bytes, {most:,}", url=path
                    )
                return file.read()
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise _translated(error, path) from error

    def size(self, name: str) -> int:
        """Return a file's size in bytes; raise what `read` raises."""
        path = os.path.join(self.root, name)  # noqa: PTH118
        try:
            status = os.stat(self._followed(path, name))  # noqa: PTH116
        except OSError as error:
            raise _translated(error, path) from error
        if not stat.S_ISREG(status.st_mode):
            raise ShardNotFound("there is no such file", url=path)
        return status.st_size

    def path_of(self, name: str) -> Path:
        """Return where a file really lies, behind its links; raise UnsafeName when that is not to be followed."""
        return Path(self._followed(os.path.join(self.root, name), name))  # noqa: PTH118

    def _opened(self, path: str, name: str) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._followed(path, name), flags if self._follow else flags | os.O_NOFOLLOW)

    def _followed(self, path: str, name: str) -> str:
        """Return where the path really leads, and refuse it when that is outside the root."""
        if self._follow:
            return path
        real = os.path.realpath(path)
        if not self._is_inside(real):
            raise UnsafeName(
                f"{path}: {name!r} leads out of {self.root}, to {real}; follow_links=True (--follow-links) packs it"
            )
        return real

    def _is_inside(self, real: str) -> bool:
        return real.startswith(self._real.rstrip("/") + "/")

    def _note(self, entry: os.DirEntry[str], listing: Listing, left_out: LeftOut) -> None:
        name = f"{listing.path}/{entry.name}".lstrip("/")
        if entry.is_symlink() and not self._takes_link(entry, name, listing, left_out):
            return
        if entry.is_dir():
            if entry.name.startswith(".") or entry.name.lower() in _SYSTEM_FOLDERS:
                left_out.add(HIDDEN, f"{name}/")
            else:
                listing.folders.append(entry.name)
        elif not entry.is_file():
            left_out.add(SPECIAL, name)
        elif entry.name.startswith(".") or entry.name.lower() in SYSTEM_FILES:
            left_out.add(HIDDEN, name)
        else:
            listing.files.append((entry.name, entry.stat().st_size))

    def _takes_link(self, entry: os.DirEntry[str], name: str, listing: Listing, left_out: LeftOut) -> bool:
        if not os.path.exists(entry.path):  # noqa: PTH110
            left_out.add(BROKEN_LINK, name)
        elif self._follow or (entry.is_file() and self._is_inside(os.path.realpath(entry.path))):
            return True
        else:
            left_out.add(LINK, name)
            if entry.is_dir() and not entry.name.startswith("."):
                listing.links.append(entry.name)
        return False


def _translated(error: OSError, path: str) -> StoreError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ShardNotFound("there is no such file or folder", url=path)
    if isinstance(error, PermissionError):
        return AccessDenied("it may not be read", url=path)
    return StoreError(f"the file system said: {error.strerror or error}", url=path)
