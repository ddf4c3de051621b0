"""The interface of every archive reader: blocks of bytes in, groups of whole members out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

__all__ = ["Archive", "Bytes", "Members", "Wanted"]

Bytes = bytes | bytearray | memoryview

Wanted = Callable[[str], bool]
"""Tells whether a member of this name is wanted. Other members may come without bytes."""


class Members(NamedTuple):
    """Consecutive whole members of one archive, as ranges of `data`, which is valid until the next group.

    A name that ends with a slash is a directory that was stored as a file.
    """

    names: list[str]
    offsets: list[int]  # in the archive, of the first header that describes the member
    starts: list[int]  # in data
    sizes: list[int]
    data: Bytes


class Archive(Protocol):
    """Reads one archive, without I/O. Call `feed()` with each block of its bytes, cut anywhere, then `finish()`."""

    ignored: int  # members so far that are not files: directories, links, devices

    @property
    def end(self) -> int:
        """The offset at which the members end; valid after `finish()`."""
        ...

    @property
    def ended(self) -> bool:
        """Whether all members read so far are whole, even if an error follows."""
        ...

    def feed(self, block: Bytes) -> Iterator[Members]:
        """Yield the members that end in this block."""
        ...

    def finish(self) -> None:
        """Check that the archive ends where its bytes end; raise `TruncatedArchive` otherwise."""
        ...
