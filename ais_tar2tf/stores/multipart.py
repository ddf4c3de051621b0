"""A request for several ranges of one object, and its answer: multipart/byteranges. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["MAX_PART_HEAD", "pieces_of", "ranges_header"]

MAX_PART_HEAD = 1024
"""The most bytes before each range: the boundary and the headers of the part."""

_HEAD_END = b"\r\n\r\n"
_CONTENT_RANGE = re.compile(
    rb"^content-range:\s*bytes (\d{1,18})-(\d{1,18})/(\d{1,18})\s*$", re.IGNORECASE | re.MULTILINE
)


def ranges_header(wanted: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return the header that requests each (start, stop).

    >>> ranges_header([(0, 10), (50, 60)])
    {'Range': 'bytes=0-9,50-59'}
    """
    return {"Range": "bytes=" + ",".join(f"{start}-{stop - 1}" for start, stop in wanted)}


def pieces_of(data: memoryview, wanted: Sequence[tuple[int, int]]) -> tuple[list[memoryview], int] | None:
    """Return the bytes of each (start, stop), and the object's size.

    Return None unless the answer begins with these ranges, in this order.
    """
    pieces: list[memoryview] = []
    offset, size = 0, -1
    for start, stop in wanted:
        head = bytes(data[offset : offset + MAX_PART_HEAD])
        end = head.find(_HEAD_END)
        found = _CONTENT_RANGE.search(head[:end].replace(b"\r", b"")) if end >= 0 else None
        if found is None or (int(found[1]), int(found[2])) != (start, stop - 1) or size not in (-1, int(found[3])):
            return None
        begin = offset + end + len(_HEAD_END)
        offset, size = begin + stop - start, int(found[3])
        pieces.append(data[begin:offset])
    if offset > len(data) or bytes(data[offset : offset + 4]) != b"\r\n--":
        return None
    return pieces, size
