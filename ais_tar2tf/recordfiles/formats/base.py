"""The interface of all formats of record files, `RecordFormat`, and the objects that its methods take and return.

This module must not know any particular format. Each format is a subclass in a module of its own.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.formats.byte_files import ConcatenatedWriter, HashedStream
from ais_tar2tf.recordfiles.formats.rows import Row
from ais_tar2tf.records import Record

__all__ = ["RecordFile", "RecordFileWriter", "RecordFormat", "RecordReader", "Scan", "StoredFile"]


@dataclass(frozen=True, slots=True)
class RecordFile:
    """The description of one finished file in its manifest."""

    name: str
    records: int
    bytes: int
    checksum: str  # "xxh3-128:hex", of the whole file


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of reading a file to its end."""

    records: int
    # The offset of each record, if the format's `supports_index` is true; otherwise empty.
    offsets: array[int] = field(default_factory=lambda: array("Q"))


class RecordFileWriter(Protocol):
    """Writes one record file."""

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        """Append records with the sizes `sizes`. `pieces` are the bytes of all these records, one after another."""
        ...

    def close(self) -> str:
        """Complete the file and return its checksum. The caller must sync the file to disk."""
        ...

    def abandon(self) -> None:
        """Close the file without completing it."""
        ...


class RecordReader(Protocol):
    """Reads single records of one file."""

    def read(self, number: int) -> bytes:
        """Verify the checksums of the record with this number and return its payload."""
        ...


class StoredFile(Protocol):
    """A finished record file, from which a format reads. The file lies in a local folder or in a store."""

    described: RecordFile  # the file's entry in its manifest
    url: str  # the URL or path of the file, for errors
    local: bool  # whether the file lies in a local folder
    has_index: bool  # whether an index in the format of NVIDIA's DALI lies next to the file

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`."""
        ...

    def stream(self, suffix: str = "") -> io.BufferedReader[Any]:
        """Open this file. With a suffix, open the file whose name is this file's name followed by the suffix."""
        ...

    def hashed(self) -> HashedStream:
        """Open the file as an unbuffered stream that hashes the bytes read from it."""
        ...

    def local_path(self) -> Path:
        """Return a local path of the file. A file in a store is downloaded first."""
        ...


class RecordFormat(ABC):
    """A format of record files: it names, writes, verifies and reads them.

    Instances have no state. The class attributes state what the format can do. Other code reads these attributes, and
    must not compare the names of formats.
    """

    name: ClassVar[str]  # the name of the format in `export(format=…)`, manifests and plans
    infix: ClassVar[str] = ""  # inserted into a file's name before the dash and the number, such as `.tfrecord`
    extension: ClassVar[str] = ""  # the part of a file's name after its number
    end: ClassVar[bytes] = b""  # the end mark of a file: the bytes after its last record
    holds_examples: ClassVar[bool]  # True: a record is a tf.train.Example; False: a record is the members of a tar
    concatenated: ClassVar[bool] = True  # a file consists of the bytes of its records, one after another, and `end`
    random_access: ClassVar[bool]  # a record can be read by its number
    read_by_tensorflow: ClassVar[bool] = False  # TensorFlow opens and reads local files itself
    read_by_tfds: ClassVar[bool] = False  # TFDS reads an export of this format
    supports_index: ClassVar[bool] = False  # DALI's index can be written next to each file

    def check_installed(self) -> None:  # noqa: B027  # most formats need no package
        """Raise `MissingDependency` if the format needs a package that is not installed."""

    def file_name(self, name: str, split: str, number: int, total: int) -> str:
        """Return the final name of file `number` of `total`, as TFDS names files.

        >>> from ais_tar2tf.recordfiles.formats import find_format
        >>> find_format("tfrecord").file_name("mnist", "train", 0, 7)
        'mnist-train.tfrecord-00000-of-00007'
        """
        return f"{name}-{split}{self.infix}-{number:05d}-of-{total:05d}{self.extension}"

    @abstractmethod
    def row(self, record: Record, written: Any) -> Row:
        """Return the bytes of one record without its frame, which `framed` adds.

        Args:
            record: The input record. Errors name its shard and key.
            written: The value to write: the input record itself, or the result of the user's function for it.
        """

    def framed(self, rows: list[Row], sizes: list[int]) -> tuple[list[Row], list[int]]:
        """Return the rows, each with the frame that the format writes around it, and the sizes of the framed rows."""
        return rows, sizes

    def open_writer(self, path: Path) -> RecordFileWriter:
        """Create the file `path` and return its writer."""
        return ConcatenatedWriter(path, self.end)

    @abstractmethod
    def scan(self, stream: io.BufferedReader[Any], url: str) -> Scan:
        """Read a file to its end and verify the checksum of each record. Errors name the file by `url`."""

    def index_of(self, path: Path) -> bytes:
        """Return the content of DALI's index for a finished file."""
        raise ExportError(f"{path}: {self.name} files have no index")

    def open_reader(self, file: StoredFile) -> RecordReader:
        """Open a file for random access."""
        raise ExportError(f"{file.url}: single records of {self.name} files can't be read")

    def payloads(self, file: StoredFile, start: int, stop: int, read: Callable[[int], bytes]) -> Iterator[bytes]:
        """Yield the payloads of records `start` to `stop` of a file. `read` takes a number and returns a payload."""
        del file
        return map(read, range(start, stop))
