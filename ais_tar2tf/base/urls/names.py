"""Names of files and objects below a root, checked so that none can leave it. No I/O.

Every name from a document, a CSV file or a listing must become a `SafeName` before it is used. For the names of
objects that a user states, `check_object_name` is enough.
"""

from __future__ import annotations

import os

from ais_tar2tf.errors import UnsafeName

__all__ = ["SafeName", "check_object_name"]

_DOTS = (".", "..")


class SafeName(str):
    """A relative name, with parts separated by `/`, that stays below any root to which it is joined.

    Args:
        name: The unchecked name.
        where: The file, URL or listing that contains the name, for the error.

    Raises:
        UnsafeName: The name is empty or absolute, has an empty part, a part `.` or `..`, a NUL, or, on Windows, a
            backslash or a drive.

    >>> SafeName("train/shard-000.tar", where="manifest.json")
    'train/shard-000.tar'
    >>> SafeName("../secrets", where="manifest.json")
    Traceback (most recent call last):
        ...
    ais_tar2tf.errors.UnsafeName: manifest.json: the name '../secrets' is refused: it has a part '..'
    """

    __slots__ = ()

    def __new__(cls, name: str, *, where: str) -> SafeName:
        reason = _reason_against(name)
        if reason:
            raise UnsafeName(f"{where}: the name {name!r} is refused: {reason}")
        return super().__new__(cls, name)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # another process gets plain text, which was checked here


def _reason_against(name: str) -> str:
    """Return why `name` is refused, or an empty string."""
    if not name:
        return "it is empty"
    if "\0" in name:
        return "it has a NUL"
    if name.startswith("/"):
        return "it is absolute"
    if os.name == "nt" and ("\\" in name or ":" in name):
        return "it has a backslash or a drive"
    for part in name.split("/"):
        if part in ("", *_DOTS):
            return f"it has a part {part!r}" if part else "it has an empty part"
    return ""


def check_object_name(name: str, *, url: str) -> None:
    """Refuse a name that a server or proxy may read as another object's name: to many, `a/../b` is `b`.

    Args:
        name: An object's name in its bucket. Empty parts are allowed, as object stores allow them.
        url: The object's URL, for the error.

    Raises:
        UnsafeName: The name has a part `.` or `..`, or a NUL.
    """
    if ("." in name and not {*_DOTS}.isdisjoint(name.split("/"))) or "\0" in name:
        raise UnsafeName(
            f"{url}: an object's name with a part '.' or '..' or a NUL is not sent: servers take it for another name"
        )
