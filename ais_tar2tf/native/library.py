"""Loads the native step's library for tars, and calls its functions by ctypes, without the interpreter's lock."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Engine", "Grouped", "TarLibrary", "Walked", "engine", "gather", "tar_library"]

VERSION = 3  # of the functions and structures in native.h; a library of another version is not used
SWITCH = "AIS_TAR2TF_NATIVE"
FOLDER = Path(__file__).parent / "lib"
TAR_LIBRARY = "tar.so"

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_HEADER = 512  # bytes: the least that a member takes
_NAME_BYTES = 32  # room for a name, on average; where names are longer, fewer members are found at once
_NAME_ROOM = 64 * 1024
_NUMBERS = 8  # for each member, the most that `t2t_group` writes
_FILE_MEMBERS = 1024  # the most members that a walk of a file finds at once


def _address(array: npt.NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]  # faster than `array.ctypes.data`


class _WalkedStructure(ctypes.Structure):
    _fields_ = [  # ctypes reads the list
        ("room", ctypes.c_int64),
        ("name_room", ctypes.c_int64),
        ("offsets", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("name_ends", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("ignored", ctypes.c_int64),
        ("position", ctypes.c_int64),
        ("missing", ctypes.c_int64),
    ]


class _GroupedStructure(ctypes.Structure):
    _fields_ = [  # ctypes reads the list
        ("keys", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("key_bytes", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("ascending", ctypes.c_int64),
        ("rest_is_one", ctypes.c_int64),
    ]


@dataclass(frozen=True, slots=True)
class Walked:
    """The plain members of a block or a file, in arrays with an entry for each member.

    The arrays are valid until the next walk by the same `TarLibrary`.

    Attributes:
        offsets: In the block or file, of the first header that describes the member.
        starts: In the block or file, of the body.
        sizes: Bytes of the body.
        name_ends: In `names`.
        names: The names, with a NUL after each.
        ignored: The number of members that are no files.
        position: In the block or file, after the last member and its padding, which may lie after the end.
        missing: How many bytes of the next member a later block has; 0 if the walk ended for another reason.
        structure: The C structure that has these arrays.
    """

    offsets: Numbers
    starts: Numbers
    sizes: Numbers
    name_ends: Numbers
    names: Bytes
    ignored: int
    position: int
    missing: int
    structure: ctypes.Structure


@dataclass(frozen=True, slots=True)
class Grouped:
    """Consecutive records with the same fields in the same order.

    Attributes:
        keys: The keys, with a NUL after each.
        offsets: The offset of each record in the archive.
        extents: The bytes from each record to the next.
        starts: Where each column begins, in a row for each column: the key (in `keys`), the name of the shard, and
            the fields in the order of the members.
        sizes: The bytes of each column, in the same rows.
        width: The number of members of a record.
        ascending: Whether each key is greater than the one before it.
        rest_is_one: Whether all members after these records have one key.
    """

    keys: Bytes
    offsets: Numbers
    extents: Numbers
    starts: Numbers
    sizes: Numbers
    width: int
    ascending: bool
    rest_is_one: bool


class TarLibrary:
    """The functions of `tar.c` and `group.c`. An instance has buffers of its own: use it in one thread at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._walked = _WalkedStructure()

    def walk(self, block: memoryview, start: int, *, member_bytes: int, pax_bytes: int) -> Walked | None:
        """Find the plain members of `block[start:]`; return None if the first header is not plain.

        Args:
            block: A block of a tar.
            start: Where a header begins in the block.
            member_bytes: A member with more bytes is not plain.
            pax_bytes: A PAX header with more bytes is not plain.
        """
        self._reserve(len(block) - start)
        source, found = np.frombuffer(block, np.uint8), ctypes.byref(self._walked)
        self._library.t2t_walk(_address(source), start, len(block), member_bytes, pax_bytes, found)
        return self._found(start)

    def walk_file(
        self, descriptor: int, start: int, stop: int, enough: int, *, member_bytes: int, pax_bytes: int
    ) -> Walked | None:
        """Find plain members of an open file, without reading their bodies; return None if the first is not plain.

        Args:
            descriptor: Of the file.
            start: Where a header begins in the file.
            stop: A member that ends later is left out.
            enough: Members that begin at this offset or later are left out.
            member_bytes: A member with more bytes is not plain.
            pax_bytes: A PAX header with more bytes is not plain.
        """
        self._reserve(_FILE_MEMBERS * _HEADER)
        found = ctypes.byref(self._walked)
        self._library.t2t_walk_file(descriptor, start, stop, enough, member_bytes, pax_bytes, found)
        return self._found(start)

    def group(self, walked: Walked, first: int, rule: int, *, base: int, shift: int, shard_bytes: int) -> Grouped:
        """Group members into records.

        Args:
            walked: The members.
            first: The number of the first member to group.
            rule: 0: the key ends at the first dot of a name; 1: at the last dot.
            base: Added to the offsets of records.
            shift: Added to the starts of fields.
            shard_bytes: The bytes of the shard's name.
        """
        room = len(walked.sizes) - first
        keys, numbers = np.empty(len(walked.names), np.uint8), np.empty(_NUMBERS * room, np.int64)
        found = _GroupedStructure(_address(keys), _address(numbers))
        self._library.t2t_group(
            ctypes.byref(walked.structure), first, rule, base, shift, shard_bytes, ctypes.byref(found)
        )
        count, columns = found.count, 2 + found.width
        rows = numbers[: (2 + 2 * columns) * count].reshape(2 + 2 * columns, count)
        flags = bool(found.ascending), bool(found.rest_is_one)
        keys = keys[: found.key_bytes]
        return Grouped(keys, rows[0], rows[1], rows[2 : 2 + columns], rows[2 + columns :], found.width, *flags)

    def _found(self, start: int) -> Walked | None:
        """Return the arrays that a walk from `start` on has filled."""
        found = self._walked
        if found.position == start:
            return None
        offsets, starts, sizes, ends = self._rows[:, : found.count]
        names = self._names[: int(ends[-1]) + 1 if found.count else 0]
        return Walked(offsets, starts, sizes, ends, names, found.ignored, found.position, found.missing, found)

    def _reserve(self, size: int) -> None:
        """Make room for the members of a block of `size` bytes."""
        room = size // _HEADER + 1
        if room > self._walked.room:
            self._rows = np.empty((4, room), np.int64)
            self._names = np.empty(_NAME_ROOM + room * _NAME_BYTES, np.uint8)
            addresses = [_address(each) for each in (*self._rows, self._names)]
            self._walked = _WalkedStructure(room, len(self._names), *addresses)


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine runs: "native" or "python", and why."""

    name: str
    why: str


@functools.cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """Return the library of `tar.c` and `group.c`, and where it is; or None, and why it is not used."""
    path = FOLDER / TAR_LIBRARY
    if not path.is_file():
        return None, "the native step was not built; install a C compiler, then install this package again"
    try:
        library = ctypes.CDLL(os.fspath(path))
        version = int(library.t2t_version())
    except (OSError, AttributeError) as error:
        return None, f"{path} cannot be loaded ({error})"
    if version != VERSION:
        return None, f"{path} was built for another version of this package; install the package again"
    number, size = ctypes.c_int64, ctypes.c_void_p
    library.t2t_walk.argtypes = (size, number, number, number, number, ctypes.POINTER(_WalkedStructure))
    library.t2t_walk_file.argtypes = (number,) * 6 + (ctypes.POINTER(_WalkedStructure),)
    library.t2t_group.argtypes = (
        (ctypes.POINTER(_WalkedStructure),) + (number,) * 5 + (ctypes.POINTER(_GroupedStructure),)
    )
    library.t2t_gather.argtypes = (size, size, size, number, size)
    for function in (library.t2t_walk, library.t2t_walk_file, library.t2t_group, library.t2t_gather):
        function.restype = None
    return library, os.fspath(path)


def engine() -> Engine:
    """Return the engine that reads tars: its name, and the path of its library or the reason for pure Python."""
    if os.environ.get(SWITCH, "") == "0":
        return Engine("python", f"{SWITCH}=0")
    library, why = load()
    return Engine("python" if library is None else "native", why)


def gather(block: Bytes, starts: Numbers, sizes: Numbers, out: Bytes) -> None:
    """Copy ranges of a block one after another to `out`, which has room for all of them.

    Raises:
        AssertionError: A range is outside of the block, or `out` is too small.
    """
    if len(starts) and (starts.min() < 0 or sizes.min() < 0 or (starts > len(block) - sizes).any()):
        raise AssertionError("a range is outside of its block")
    if int(sizes.sum()) > len(out):
        raise AssertionError("the ranges are larger than the room for them")
    library = load()[0]
    assert library is not None
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    library.t2t_gather(block.ctypes.data, starts.ctypes.data, sizes.ctypes.data, len(starts), out.ctypes.data)


def tar_library() -> TarLibrary | None:
    """Return the functions for tars, with buffers of their own; None where pure Python is used."""
    library = load()[0] if engine().name == "native" else None
    return None if library is None else TarLibrary(library)
