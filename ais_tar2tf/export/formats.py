"""The kinds of record files: how one is named, and how records' bytes go into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import xxhash

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.export.tarfiles import END

__all__ = [
    "FORMATS",
    "Part",
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
_ARRAY_RECORD_OPTIONS = "group_size:1"  # single records can be read; what TFDS writes, too


def check_format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}, not {name!r}")
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
        from array_record.python import array_record_module as module
    except ImportError as error:
        raise MissingDependency("array-record", extra="tfds") from error
    return module


class Part(Protocol):
    """One file that is being written."""

    def append(self, data: memoryview, sizes: Sequence[int]) -> None:
        """Records that stand one after another in `data`."""
        ...

    def close(self) -> str:
        """The file is whole, but perhaps not on disk yet; gives its checksum."""
        ...

    def abandon(self) -> None: ...


class _PlainPart:
    """TFRecord and tar: the records' bytes one after another, and an end mark."""

    def __init__(self, path: Path, end: bytes) -> None:
        self._file = path.open("wb", buffering=0)
        self._end = end
        self._hash = xxhash.xxh3_128()

    def append(self, data: memoryview, sizes: Sequence[int]) -> None:
        del sizes
        self._hash.update(data)
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> str:
        if self._end:
            self.append(memoryview(self._end), ())
        self._file.close()
        return f"{_ALGORITHM}:{self._hash.hexdigest()}"

    def abandon(self) -> None:
        self._file.close()


class _ArrayRecordPart:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()  # says what is wrong with the place; the library's own message does not
        self._writer = array_record_module().ArrayRecordWriter(os.fspath(path), _ARRAY_RECORD_OPTIONS)

    def append(self, data: memoryview, sizes: Sequence[int]) -> None:
        begin = 0
        try:
            for size in sizes:
                self._writer.write(bytes(data[begin : begin + size]))
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
