"""The format ArrayRecord: tf.train.Examples with random access.

The package `array_record` writes and reads the files. This module turns the errors of that package into
`ArchiveError` and `OSError`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ArchiveError, MissingDependency
from ais_tar2tf.recordfiles.formats.base import RecordFileWriter, RecordReader, Scan, StoredFile
from ais_tar2tf.recordfiles.formats.byte_files import checksum_of, copy_stream
from ais_tar2tf.recordfiles.formats.examples import ExampleFormat
from ais_tar2tf.stores.file import file_error

__all__ = ["FORMAT"]

_OPTIONS = "group_size:1"  # each record is a group of its own, so that it can be read alone; TFDS writes the same
_OFFSET_IN_TEXT = re.compile(r"\b(?:block|chunk) at (\d+)")
_LIBRARY_ERRORS = (RuntimeError, ValueError, IndexError)


class _ArrayRecordFormat(ExampleFormat):
    name = "array_record"
    infix = ".array_record"
    concatenated = False

    def check_installed(self) -> None:
        _library()

    def open_writer(self, path: Path) -> RecordFileWriter:
        return _ArrayRecordWriter(path)

    def scan(self, stream: io.BufferedReader[Any], url: str) -> Scan:
        with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
            reader = _ArrayRecordReader(copy_stream(stream, Path(folder)), url)
            for number in range(reader.records):
                reader.read(number)
            reader.close()
            return Scan(reader.records)

    def open_reader(self, file: StoredFile) -> RecordReader:
        return _ArrayRecordReader(file.local_path(), file.url)


def _library() -> Any:
    try:
        from array_record.python import array_record_module as module  # pyright: ignore[reportAttributeAccessIssue]  # compiled
    except ImportError as error:
        raise MissingDependency("array-record", extra="tfds") from error
    return module


class _ArrayRecordWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()  # this error says why the file can't be created; the library's error does not
        self._writer = _library().ArrayRecordWriter(os.fspath(path), _OPTIONS)

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        data = io.BytesIO(b"".join(pieces))
        try:
            for size in sizes:
                self._writer.write(data.read(size))
        except RuntimeError as error:
            raise OSError(str(error)) from error

    def close(self) -> str:
        try:
            self._writer.close()
        except RuntimeError as error:
            raise OSError(str(error)) from error
        return checksum_of(self._path)

    def abandon(self) -> None:
        with contextlib.suppress(RuntimeError):  # the file is given up, so its errors do not matter
            self._writer.close()


class _ArrayRecordReader:
    """Reads records of a local ArrayRecord file. The library verifies the checksums.

    Args:
        path: The file.
        url: The name of the file in errors, such as the URL that it was downloaded from.
    """

    def __init__(self, path: Path, url: str) -> None:
        self._url = url
        try:
            path.stat()
            self._reader = _library().ArrayRecordReader(str(path))
            self.records: int = self._reader.num_records()
        except OSError as error:
            raise file_error(error, url) from error
        except _LIBRARY_ERRORS as error:
            raise self._damaged(0, error) from error

    def read(self, number: int) -> bytes:
        try:
            (payload,) = self._reader.read([number])
        except _LIBRARY_ERRORS as error:
            raise self._damaged(number, error) from error
        return payload

    def close(self) -> None:
        try:
            self._reader.close()
        except _LIBRARY_ERRORS as error:
            raise self._damaged(self.records, error) from error

    def _damaged(self, number: int, error: Exception) -> ArchiveError:
        text = str(error).splitlines()[0] if str(error) else "unreadable"
        found = _OFFSET_IN_TEXT.search(text)
        return ArchiveError(f"record {number:,}: {text}", shard=self._url, offset=int(found[1]) if found else 0)


FORMAT = _ArrayRecordFormat()
