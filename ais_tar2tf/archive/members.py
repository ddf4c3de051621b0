"""The interface of every archive reader: blocks of bytes in, groups of whole members out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.native import Walked

__all__ = ["Archive", "Bytes", "ListedMembers", "MemberTable", "Members", "Wanted", "decode_names"]

Bytes = bytes | bytearray | memoryview

Wanted = Callable[[str], bool]
"""Tells whether a member of this name is wanted. Other members may come without bytes."""


class Members(Protocol):
    """Consecutive whole members of one archive, as ranges of `data`, which is valid until the next group.

    A name that ends with a slash is a directory that was stored as a file. Before its receiver asks for the next
    group, it may give back the last members of a `MemberTable` by `give_back`. They come again with the next block.
    """

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def offsets(self) -> Sequence[int]:
        """In the archive, of the first header that describes the member."""
        ...

    @property
    def starts(self) -> Sequence[int]:
        """In `data`."""
        ...

    @property
    def sizes(self) -> Sequence[int]: ...
    @property
    def data(self) -> Bytes | FileBytes: ...
    @property
    def total(self) -> int:
        """The number of members."""
        ...

    @property
    def given_back(self) -> int:
        """The number of members that the receiver has given back."""
        ...


class ListedMembers(NamedTuple):
    """Members in lists."""

    names: list[str]
    offsets: list[int]
    starts: list[int]
    sizes: list[int]
    data: Bytes | FileBytes

    @property
    def total(self) -> int:
        return len(self.names)

    @property
    def given_back(self) -> int:
        return 0


@dataclass
class MemberTable:
    """Members that the native step found. They are converted to lists when somebody reads them.

    Attributes:
        walked: The members, with offsets in the block or the file.
        base: The offset of the block in the archive; 0 for a file.
        data: The block or the file.
        again_from: The position in the block from which on members can be given back; None if none can.
        given_back: The number of members that were given back.
    """

    walked: Walked
    base: int
    data: memoryview | FileBytes
    again_from: int | None = None
    given_back: int = field(default=0, init=False)

    @property
    def total(self) -> int:
        return len(self.walked.sizes)

    @property
    def names(self) -> list[str]:
        return self._listed.names

    @property
    def offsets(self) -> list[int]:
        return self._listed.offsets

    @property
    def starts(self) -> list[int]:
        return self._listed.starts

    @property
    def sizes(self) -> list[int]:
        return self._listed.sizes

    def give_back(self, first: int) -> bool:
        """Give back all members from number `first` on, and return True; return False if that is not possible."""
        if self.again_from is None or first == self.total or self.walked.offsets[first] < self.again_from:
            return False
        self.given_back = self.total - first
        return True

    @property
    def given_back_at(self) -> int:
        """The position in the block of the first member that was given back."""
        return int(self.walked.offsets[self.total - self.given_back])

    @cached_property
    def _listed(self) -> ListedMembers:
        return self.part(0)

    def part(self, begin: int, end: int | None = None) -> ListedMembers:
        """Return the members from number `begin` to `end` in lists."""
        end = self.total if end is None else min(end, self.total)
        chosen = slice(begin, end)
        offsets = (self.walked.offsets[chosen] + self.base).tolist()
        starts, sizes = self.walked.starts[chosen].tolist(), self.walked.sizes[chosen].tolist()
        first = int(self.walked.name_ends[begin - 1]) + 1 if begin else 0
        last = int(self.walked.name_ends[end - 1]) if end > begin else first
        names = decode_names(self.walked.names[first:last].tobytes(), end - begin)
        return ListedMembers(names, offsets, starts, sizes, self.data)


def decode_names(joined: bytes, count: int) -> list[str]:
    """Return `count` names that NULs separate. Bytes that are not UTF-8 become surrogates.

    >>> decode_names(b"a.jpg\\0b.jpg", 2)
    ['a.jpg', 'b.jpg']
    """
    return joined.decode("utf-8", "surrogateescape").split("\0") if count else []


class Archive(Protocol):
    """Reads one archive, without I/O. Call `feed()` with each block of its bytes, cut anywhere, then `finish()`."""

    ignored: int  # members so far that are not files: directories, links, devices

    @property
    def end(self) -> int:
        """The offset at which the members end; valid after `finish()`."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no later member can belong to the last record: the end was reached, or each member is a record."""
        ...

    def feed(self, block: Bytes) -> Iterator[Members]:
        """Yield the members that end in this block."""
        ...

    def finish(self) -> None:
        """Check that the archive ends where its bytes end; raise `TruncatedArchive` otherwise."""
        ...
