"""What every archive gives: consecutive whole members, as places in a block of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

__all__ = ["Archive", "Bytes", "Members", "Wanted"]

Bytes = bytes | bytearray | memoryview

Wanted = Callable[[str], bool]
"""Whether a member of this name will be read: the body of one that won't is never put together."""


class Members(NamedTuple):
    """Whole members of one archive, in order. `data` is valid until the next ones are asked for.

    A name that ends with a slash is a directory, which v7 writes as a file.
    """

    names: list[str]
    offsets: list[int]  # in the archive, of the first header that speaks of the member
    starts: list[int]  # in data
    sizes: list[int]
    data: Bytes


class Archive(Protocol):
    """Blocks of bytes in, members out; no I/O. `feed` any cut of the bytes, then `finish`."""

    ignored: int  # members that are not files: directories, links, devices

    @property
    def end(self) -> int:
        """Offset at which the members end, once it is finished."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no member can follow those that came: what is wrong then stands behind all of them."""
        ...

    def feed(self, block: Bytes) -> Iterator[Members]: ...

    def finish(self) -> None:
        """The bytes are at their end: raises `TruncatedArchive` unless the archive is too."""
        ...
