"""Folders that belong to this package, such as the folder of a cache: mark, check, empty and delete them.

A folder is *ours* if it has the marker file. A folder without the marker is ours if a `Layout` describes every name
in it: such a folder is empty, or an earlier version of this package made it. Any other folder is refused.

This module must not delete a file whose name the layout does not describe. If a link stands in place of a folder of
ours, or inside of one, this module must not follow it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARKER", "Layout", "check", "claim", "clear", "make_below", "opened", "remove", "sync"]

Refuse = Callable[[str], Exception]
"""Returns the error for a folder that is not ours. The argument is the text of the error."""

MARKER = ".ais_tar2tf"
_TEXT = b"ais_tar2tf keeps files of its own in this folder, and deletes them when it needs them no longer.\n"
_SYSTEM_FILES = re.compile(r"lost\+found|\.nfs[0-9a-f]+|\.DS_Store|\.Trash-\d+")  # made by file systems and desktops
_MARK_ERRORS = (errno.EEXIST, errno.EROFS, errno.EACCES, errno.EPERM)  # the marker exists, or the folder is read-only
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Layout:
    """The names that a folder of ours may contain.

    Attributes:
        files: The names of files.
        folders: The names of subfolders, each with the layout of these subfolders.
    """

    files: re.Pattern[str]
    folders: tuple[tuple[re.Pattern[str], Layout], ...] = ()

    def below(self, name: str) -> Layout | None:
        """Return the layout of the subfolder `name`; None if this layout does not describe the name."""
        return next((layout for pattern, layout in self.folders if pattern.fullmatch(name)), None)


def check(path: Path, layout: Layout, *, fail: Refuse) -> None:
    """Raise `fail(…)` if the folder exists and is not ours. Change nothing."""
    try:
        with opened(path, fail=fail) as folder:
            _check(folder, path, layout, fail)
    except FileNotFoundError:
        return


def claim(path: Path, layout: Layout, *, fail: Refuse, mode: int = 0o777) -> None:
    """Create a folder if it does not exist, check that it is ours, and mark it.

    Args:
        path: The folder. It must not be a link, but the folders above it may be links.
        layout: The names that the folder may contain.
        fail: Returns the error if `path` is a link, a file, or a folder that is not ours.
        mode: The permissions of a new folder.
    """
    path.mkdir(mode, parents=True, exist_ok=True)
    with opened(path, fail=fail) as folder:
        _check(folder, path, layout, fail)
        _mark(folder)


def clear(path: Path, layout: Layout, *, fail: Refuse, keep: Collection[str] = ()) -> None:
    """Delete the files and subfolders of `layout` in a folder of ours, except the marker and the files in `keep`."""
    with opened(path, fail=fail) as folder:
        _check(folder, path, layout, fail)
        _clear(folder, layout, keep)


def remove(path: Path, layout: Layout, *, fail: Refuse) -> None:
    """Delete a folder of ours, if it exists. If it also has other files, keep the folder and these files."""
    try:
        with opened(path, fail=fail) as folder:
            _check(folder, path, layout, fail)
            _clear(folder, layout, ())
            with os.scandir(folder) as entries:
                is_empty = all(entry.name == MARKER for entry in entries)
            if is_empty:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(MARKER, dir_fd=folder)
        path.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


@contextlib.contextmanager
def opened(path: Path | str, *, fail: Refuse, below: int | None = None) -> Generator[int]:
    """Open a folder and yield its descriptor, for calls that take `dir_fd`. Raise `fail(…)` for a link or a file.

    `path` may be relative to the open folder `below`.
    """
    try:
        handle = os.open(path, _FOLDER, dir_fd=below)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise fail(
            f"{path}: a link or a file stands where a folder of ais_tar2tf's own is needed; nothing behind it is "
            "touched: take it away, or choose another place"
        ) from error
    try:
        yield handle
    finally:
        os.close(handle)


def make_below(name: str, folder: int, *, mode: int) -> None:
    """Create the folder `name` in the open folder `folder`, unless it exists."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)


def _check(folder: int, path: Path, layout: Layout, fail: Refuse) -> None:
    """Raise `fail(…)` if the open folder is not ours."""
    stranger = None if _is_marked(folder) else _stranger(folder, layout)
    if stranger is not None:
        raise fail(
            f"{path}: this folder holds {stranger!r}, which ais_tar2tf did not make, so nothing in it is touched: "
            "choose another folder, or empty this one"
        )


def _mark(folder: int) -> None:
    try:
        handle = os.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno not in _MARK_ERRORS:
            raise
        return
    try:
        os.write(handle, _TEXT)
    finally:
        os.close(handle)


def _is_marked(folder: int) -> bool:
    try:
        handle = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return os.read(handle, len(_TEXT) + 1) == _TEXT
    except OSError:
        return False
    finally:
        os.close(handle)


def _stranger(folder: int, layout: Layout) -> str | None:
    """Return a name in the folder or its subfolders that the layout does not describe; None if there is none."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == MARKER or _SYSTEM_FILES.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                inner = layout.below(entry.name)
                if inner is None:
                    return entry.name
                found = None
                missing = contextlib.suppress(FileNotFoundError)  # if another process has deleted this subfolder
                with missing, opened(entry.name, fail=_vanished, below=folder) as below:
                    found = _stranger(below, inner)
                if found is not None:
                    return f"{entry.name}/{found}"
            elif not entry.is_file(follow_symlinks=False) or not layout.files.fullmatch(entry.name):
                return entry.name
    return None


def _clear(folder: int, layout: Layout, keep: Collection[str]) -> None:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        inner = layout.below(name) if is_folder else None
        with contextlib.suppress(FileNotFoundError):  # another process has deleted this entry
            if inner is not None:
                with opened(name, fail=_vanished, below=folder) as below:
                    _clear(below, inner, ())
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(MARKER, dir_fd=below)
                with contextlib.suppress(OSError):  # the subfolder still contains files that are not ours
                    os.rmdir(name, dir_fd=folder)
            elif not is_folder and name not in keep and layout.files.fullmatch(name):
                os.unlink(name, dir_fd=folder)


def _vanished(text: str) -> FileNotFoundError:
    """Return the error for a subfolder that another process has deleted, or replaced by a link or a file."""
    return FileNotFoundError(text)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of the names in a folder, has been written to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
