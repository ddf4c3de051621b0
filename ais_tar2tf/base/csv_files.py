"""A reader of CSV files, row by row. This module must not interpret the columns: its callers do."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from ais_tar2tf.errors import SchemaError

__all__ = ["CsvRow", "RowReader", "csv_rows"]

_BOM = b"\xef\xbb\xbf"  # a byte order mark, which some programs write before UTF-8


class CsvRow(NamedTuple):
    """A row: the offset of its first byte, the number of its last line, and its cells."""

    offset: int
    line: int
    cells: list[str]


def csv_rows(path: str | os.PathLike[str]) -> Iterator[CsvRow]:
    """Yield the rows of a CSV file in UTF-8, with or without a byte order mark. Empty lines are skipped.

    Raises:
        SchemaError: The file is no CSV. A quote that is never closed is an error, because it would swallow all later
            rows.
    """
    with open(path, "rb") as raw:  # noqa: PTH123  # a path as the user gives it
        begin = len(_BOM) if raw.read(len(_BOM)) == _BOM else 0
        raw.seek(begin)
        lines = _CountedLines(io.TextIOWrapper(raw, encoding="utf-8", newline=""), begin)
        reader = csv.reader(lines, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield CsvRow(begin, reader.line_num, cells)
                begin = lines.end
        except csv.Error as error:
            raise SchemaError(f"{os.fspath(path)}, line {reader.line_num}: this is no CSV ({error})") from error
        except UnicodeDecodeError as error:  # the text is decoded ahead of the reader
            raise SchemaError(f"{os.fspath(path)}, line {_first_bad_line(path)}: this is no CSV ({error})") from error


def _first_bad_line(path: str | os.PathLike[str]) -> int:
    """Return the number of the first line that is not UTF-8."""
    number = 0
    with open(path, "rb") as raw, contextlib.suppress(UnicodeDecodeError):  # noqa: PTH123
        for number, line in enumerate(raw, 1):  # noqa: B007  # the number of the line that fails
            line.decode()
    return number


class _CountedLines:
    """The lines of a file. `end` is the offset, in bytes, of the end of the last line that was read."""

    def __init__(self, file: TextIO, begin: int) -> None:
        self._file = file
        self.end: int = begin

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.end += len(line.encode())
            yield line


class RowReader:
    """A reader of single rows of a CSV file by their offsets. As a context manager, it closes the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file = open(path, encoding="utf-8", newline="")  # noqa: PTH123, SIM115  # closed by __exit__

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def cells_at(self, offset: int) -> list[str]:
        """Return the cells of the row that begins at this offset in bytes."""
        try:
            self._file.seek(offset)
            return next(csv.reader(self._file, strict=True), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(self._path)}: it changed while it was read ({error})") from error
