"""DALI's index of a TFRecord file: a line `offset size` for each record, its frame included. Written and checked.

It must list every record of its file, one behind the other, from the file's first byte to its last.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ais_tar2tf.errors import ExportError
from ais_tar2tf.export.framing import FRAME_BYTES
from ais_tar2tf.export.manifest import RecordFile

__all__ = ["index_lines", "offsets_in"]

_LINE = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})\r?\n?")
_LINE_BYTES = 64  # of which two numbers and a space take 37 at most
_AGAIN = "export again, or delete the file and read without it"


def index_lines(offsets: Iterable[int]) -> bytes:
    """Return the index of a file whose records begin at these offsets, of which the last is the file's end."""
    return b"".join(b"%d %d\n" % (begin, end - begin) for begin, end in itertools.pairwise(offsets))


def offsets_in(lines: BinaryIO, file: RecordFile, *, url: str) -> array[int]:
    """Return where the records of `file` begin, and where the last one ends.

    Args:
        lines: The index; it is read line by line.
        file: What the manifest says of the record file.
        url: Of the index, for errors.

    Raises:
        ExportError: The index is not one of this file.
    """
    offsets = array("Q", [0])
    for number, (begin, size) in enumerate(_pairs(lines, url), 1):
        if begin != offsets[-1] or size < FRAME_BYTES or begin + size > file.bytes:
            raise _damaged(url, f"line {number:,} says {begin:,} {size:,} behind byte {offsets[-1]:,}")
        offsets.append(begin + size)
        if number > file.records:
            raise _damaged(url, f"it lists more than the {file.records:,} records of its file")
    if len(offsets) != file.records + 1 or offsets[-1] != file.bytes:
        raise _damaged(
            url,
            f"it lists {len(offsets) - 1:,} records in {offsets[-1]:,} bytes, and its file has {file.records:,} in "
            f"{file.bytes:,}",
        )
    return offsets


def _pairs(lines: BinaryIO, url: str) -> Iterator[tuple[int, int]]:
    number = 0
    while line := lines.readline(_LINE_BYTES):
        number += 1
        found = _LINE.fullmatch(line)
        if found is None:
            raise _damaged(url, f"line {number:,} is {line!r}, not an offset and a size")
        yield int(found[1]), int(found[2])


def _damaged(url: str, why: str) -> ExportError:
    return ExportError(f"{url}: the index is damaged: {why}; {_AGAIN}")
