"""Folders of our own: marked, opened without following links, and emptied of nothing but files of ours.

A folder is ours when it holds the marker file, or, as earlier versions left it, nothing but files and folders whose
names its `Layout` describes. Any other folder that is not empty is refused. Files with other names are not deleted.
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
"""Makes the error for a folder that is not ours, from a sentence."""

MARKER = ".ais_tar2tf"
_TEXT = b"ais_tar2tf keeps files of its own in this folder, and deletes them when it needs them no longer.\n"
_DROPPINGS = re.compile(r"lost\+found|\.nfs[0-9a-f]+|\.DS_Store|\.Trash-\d+")  # of file systems and desktops
_UNMARKED = (errno.EEXIST, errno.EROFS, errno.EACCES, errno.EPERM)  # marked already, or for reading only
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Layout:
    """The names that a folder of ours may hold: of files, and of folders with a layout of their own."""

    files: re.Pattern[str]
    folders: tuple[tuple[re.Pattern[str], Layout], ...] = ()

    def below(self, name: str) -> Layout | None:
        """Return the layout of the folder `name`; None when it is not ours."""
        return next((layout for pattern, layout in self.folders if pattern.fullmatch(name)), None)


def check(path: Path, layout: Layout, *, fail: Refuse) -> None:
    """Raise `fail(…)` when a folder is there, and not ours. Nothing is changed."""
    try:
        with opened(path, fail=fail) as folder:
            _check(folder, path, layout, fail)
    except FileNotFoundError:
        return


def claim(path: Path, layout: Layout, *, fail: Refuse, mode: int = 0o777) -> None:
    """Make a folder ours, creating and marking it where that was not done before.

    Args:
        path: The folder. Links above it are followed; itself it must not be one.
        layout: What it may hold.
        fail: Makes the error for a link, a file, or a folder that holds something else.
        mode: Of the folder, if it is made now.
    """
    path.mkdir(mode, parents=True, exist_ok=True)
    with opened(path, fail=fail) as folder:
        _check(folder, path, layout, fail)
        _mark(folder)


def clear(path: Path, layout: Layout, *, fail: Refuse, keep: Collection[str] = ()) -> None:
    """Delete what `layout` describes in a folder of ours, but for `keep` and the marker."""
    with opened(path, fail=fail) as folder:
        _check(folder, path, layout, fail)
        _clear(folder, layout, keep)


def remove(path: Path, layout: Layout, *, fail: Refuse) -> None:
    """Delete a folder of ours, if it is there; it stays when it holds something that is not ours."""
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
    """Open a folder that is no link, for calls that take `dir_fd`; `below`: a folder that `path` is relative to."""
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
    """Make a folder in an open one; it may be there already."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)


def _check(folder: int, path: Path, layout: Layout, fail: Refuse) -> None:
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
        if error.errno not in _UNMARKED:
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
    """Return a name in the folder, or below it, that the layout does not describe."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == MARKER or _DROPPINGS.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                inner = layout.below(entry.name)
                if inner is None:
                    return entry.name
                with opened(entry.name, fail=_vanished, below=folder) as below:
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
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if inner is not None:
                with opened(name, fail=_vanished, below=folder) as below:
                    _clear(below, inner, ())
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(MARKER, dir_fd=below)
                with contextlib.suppress(OSError):  # it holds something that is not ours
                    os.rmdir(name, dir_fd=folder)
            elif not is_folder and name not in keep and layout.files.fullmatch(name):
                os.unlink(name, dir_fd=folder)


def _vanished(text: str) -> FileNotFoundError:
    return FileNotFoundError(text)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
