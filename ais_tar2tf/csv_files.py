"""CSV files, row by row, as programs and people write them. What their columns mean is up to who asks."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from ais_tar2tf.errors import SchemaError

__all__ = ["Row", "RowReader", "placed_rows", "rows_of"]

_MARK = b"\xef\xbb\xbf"  # what some programs write in front of UTF-8


class Row(NamedTuple):
    """One row: the byte of the file at which it begins, the number of its last line, and its cells."""

    offset: int
    line: int
    cells: list[str]


def rows_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """(the number of its last line, its cells) for each row; empty lines are none.

    The text is UTF-8, with a mark in front or without. A quote that nobody closes is an error, for it would swallow
    the rows behind it.
    """
    return ((row.line, row.cells) for row in placed_rows(path))


def placed_rows(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yield what `rows_of` does, with the place of each row, where a `RowReader` finds it again."""
    with open(path, "rb") as raw:  # noqa: PTH123  # a path as the user says it
        begin = len(_MARK) if raw.read(len(_MARK)) == _MARK else 0
        raw.seek(begin)
        lines = _Lines(io.TextIOWrapper(raw, encoding="utf-8", newline=""), begin)
        reader = csv.reader(lines, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield Row(begin, reader.line_num, cells)
                begin = lines.read
        except (csv.Error, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(path)}, line {reader.line_num + 1}: this is no CSV ({error})") from error


class _Lines:
    """The lines of a file, and how many of its bytes were read so far."""

    def __init__(self, file: TextIO, begin: int) -> None:
        self._file = file
        self.read: int = begin

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.read += len(line.encode())
            yield line


class RowReader:
    """Reads single rows of a CSV file by their offsets; a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file = open(path, encoding="utf-8", newline="")  # noqa: PTH123, SIM115  # closed by __exit__

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def cells_at(self, offset: int) -> list[str]:
        """Return the cells of the row that begins at the byte `offset`."""
        try:
            self._file.seek(offset)
            return next(csv.reader(self._file, strict=True), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(self._path)}: it changed while it was read ({error})") from error
