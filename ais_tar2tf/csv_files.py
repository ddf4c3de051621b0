"""CSV files, row by row, as programs and people write them. What their columns mean is up to who asks."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

from ais_tar2tf.errors import SchemaError

__all__ = ["rows_of"]


def rows_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """(the number of its last line, its cells) for each row; empty lines are none.

    The text is UTF-8, with a mark in front or without. A quote that nobody closes is an error, for it would swallow
    the rows behind it.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:  # noqa: PTH123  # a path as the user says it
        reader = csv.reader(file, strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except (csv.Error, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(path)}, line {reader.line_num + 1}: this is no CSV ({error})") from error
