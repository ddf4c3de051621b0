"""Builds and parses the index that NVIDIA DALI needs to read a TFRecord file.

The index is a text file with one line `OFFSET SIZE` for each record. The size includes the length and the checksums
that a TFRecord file stores with each record. A valid index lists all records of its file in order and without gaps,
from the first byte to the last. This module must reject every other index.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.formats.base import RecordFile
from ais_tar2tf.recordfiles.formats.framing import FRAME_BYTES

__all__ = ["index_lines", "offsets_in"]

_LINE = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})\r?\n?")
_MAX_LINE_BYTES = 64  # a valid line has at most 39: two numbers of 18 digits, a space, and the end of the line
_ADVICE = "export again, or delete the file and read without it"


def index_lines(offsets: Iterable[int]) -> bytes:
    """Build the index of a file. `offsets` are the offsets of its records, and finally the length of the file."""
    return b"".join(b"%d %d\n" % (begin, end - begin) for begin, end in itertools.pairwise(offsets))


def offsets_in(lines: BinaryIO, file: RecordFile, *, url: str) -> array[int]:
    """Parse an index. Return the offsets of the records of `file`, and finally the length of the file.

    Args:
        lines: The open index, which is read line by line.
        file: The record file, as its manifest describes it.
        url: The URL of the index, for errors.

    Raises:
        ExportError: The index does not list all records of this file.
    """
    offsets = array("Q", [0])
    for number, (begin, size) in enumerate(_pairs(lines, url), 1):
        if begin != offsets[-1] or size < FRAME_BYTES or begin + size > file.bytes:
            rule = f"a record must begin at byte {offsets[-1]:,} and end within the file"
            raise _damaged(url, f"line {number:,} is '{begin} {size}', but {rule}")
        offsets.append(begin + size)
        if number > file.records:
            raise _damaged(url, f"the index lists more than the {file.records:,} records of the file")
    if len(offsets) != file.records + 1 or offsets[-1] != file.bytes:
        raise _damaged(
            url,
            f"the index lists {len(offsets) - 1:,} records in {offsets[-1]:,} bytes, but the file has "
            f"{file.records:,} in {file.bytes:,}",
        )
    return offsets


def _pairs(lines: BinaryIO, url: str) -> Iterator[tuple[int, int]]:
    number = 0
    while line := lines.readline(_MAX_LINE_BYTES):
        number += 1
        found = _LINE.fullmatch(line)
        if found is None:
            raise _damaged(url, f"line {number:,} is {line!r}, not an offset and a size")
        yield int(found[1]), int(found[2])


def _damaged(url: str, why: str) -> ExportError:
    return ExportError(f"{url}: the index is damaged: {why}; {_ADVICE}")
