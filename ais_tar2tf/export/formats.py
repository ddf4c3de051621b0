"""The kinds of record files: how one is named, and how records' bytes go into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import xxhash

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.export.behind import WriteBehind
from ais_tar2tf.export.tarfiles import END
from ais_tar2tf.nearest import check_choice

__all__ = [
    "FORMATS",
    "Part",
    "PiecesFile",
    "array_record_module",
    "check_format",
    "checksum_of",
    "file_name",
    "new_part",
    "overhead_of",
]

FORMATS = ("tfrecord", "array_record", "tar")
_ALGORITHM = "xxh3-128"
_READ = 1 << 20
_LARGE_PIECE = 4_096  # bytes, on average; below it a copy costs less than another entry of a vector
_MOST_PIECES = 512  # in one call; Linux takes 1,024
_ARRAY_RECORD_OPTIONS = "group_size:1"  # single records can be read; what TFDS writes, too


def check_format(name: str) -> str:
    check_choice("format", name, FORMATS)
    if name == "array_record":
        array_record_module()
    return name


def file_name(name: str, split: str, kind: str, number: int, total: int) -> str:
    """As TFDS names files; a tar keeps its extension at the end, where other tools look for it.

    >>> file_name("mnist", "train", "tfrecord", 0, 7)
    'mnist-train.tfrecord-00000-of-00007'
    """
    place = f"{number:05d}-of-{total:05d}"
    return f"{name}-{split}-{place}.tar" if kind == "tar" else f"{name}-{split}.{kind}-{place}"


def overhead_of(kind: str) -> int:
    """Bytes of a file that belong to no record."""
    return len(END) if kind == "tar" else 0


def array_record_module() -> Any:
    try:
        from array_record.python import array_record_module as module  # pyright: ignore[reportAttributeAccessIssue]  # compiled
    except ImportError as error:
        raise MissingDependency("array-record", extra="tfds") from error
    return module


class Part(Protocol):
    """One file that is being written."""

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        """Records of these sizes, whose bytes are those of the pieces together."""
        ...

    def close(self) -> str:
        """The file is whole, but perhaps not on disk yet; gives its checksum."""
        ...

    def abandon(self) -> None: ...


class PiecesFile:
    """A file that is written and summed up piece by piece; small pieces are joined, large ones never copied.

    `again`: it is written over from its start, and keeps what stands behind.
    """

    def __init__(self, path: Path, *, again: bool = False, summed: bool = True) -> None:
        self._file = path.open("r+b" if again else "wb", buffering=0)
        self.digest: xxhash.xxh3_128 | None = xxhash.xxh3_128() if summed else None

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        if sum(map(len, pieces)) < _LARGE_PIECE * len(pieces):
            pieces = [b"".join(pieces)]
        for begin in range(0, len(pieces), _MOST_PIECES):
            self._write(pieces[begin : begin + _MOST_PIECES])

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self.digest is not None:
            for piece in pieces:
                self.digest.update(piece)
        wanted = sum(map(len, pieces))
        written = os.writev(self._file.fileno(), pieces)
        if written < wanted:  # a signal, or a disk that is nearly full
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        self._file.close()


class _PlainPart:
    """TFRecord and tar: the records' bytes one after another, and an end mark."""

    def __init__(self, path: Path, end: bytes) -> None:
        self._file = PiecesFile(path)
        self._behind = WriteBehind(self._file.write)
        self._end = end

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        del sizes
        self._behind.add(pieces)

    def close(self) -> str:
        self._behind.drain()
        if self._end:
            self._file.write([self._end])
        self.abandon()
        assert self._file.digest is not None
        return f"{_ALGORITHM}:{self._file.digest.hexdigest()}"

    def abandon(self) -> None:
        self._behind.close()
        self._file.close()


class _ArrayRecordPart:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()  # says what is wrong with the place; the library's own message does not
        self._writer = array_record_module().ArrayRecordWriter(os.fspath(path), _ARRAY_RECORD_OPTIONS)

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        data = b"".join(pieces)
        begin = 0
        try:
            for size in sizes:
                self._writer.write(data[begin : begin + size])
                begin += size
        except RuntimeError as error:
            raise OSError(str(error)) from error

    def close(self) -> str:
        try:
            self._writer.close()
        except RuntimeError as error:
            raise OSError(str(error)) from error
        return checksum_of(self._path)

    def abandon(self) -> None:
        try:
            self._writer.close()
        except RuntimeError:
            return  # it failed before, which was told


def new_part(kind: str, path: Path) -> Part:
    """A file of that kind, begun."""
    if kind == "array_record":
        return _ArrayRecordPart(path)
    return _PlainPart(path, END if kind == "tar" else b"")


def checksum_of(path: Path) -> str:
    """`algorithm:hex` of a file's bytes."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ):
            digest.update(block)
    return f"{_ALGORITHM}:{digest.hexdigest()}"
