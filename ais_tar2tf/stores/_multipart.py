"""The answer to a request for several ranges of one object: multipart/byteranges. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["MOST_FRAME", "pieces_of", "ranges_header"]

MOST_FRAME = 1024  # bytes around each range: the boundary, and what the server says of it
_HEAD_END = b"\r\n\r\n"
_CONTENT_RANGE = re.compile(
    rb"^content-range:\s*bytes (\d{1,18})-(\d{1,18})/(\d{1,18})\s*$", re.IGNORECASE | re.MULTILINE
)


def ranges_header(wanted: Sequence[tuple[int, int]]) -> dict[str, str]:
    """
    >>> ranges_header([(0, 10), (50, 60)])
    {'Range': 'bytes=0-9,50-59'}
    """
    return {"Range": "bytes=" + ",".join(f"{start}-{stop - 1}" for start, stop in wanted)}


def pieces_of(data: memoryview, wanted: Sequence[tuple[int, int]]) -> tuple[list[memoryview], int] | None:
    """The bytes of each (start, stop), and the object's size; None unless exactly these are there, in this order."""
    found: list[memoryview] = []
    at, size = 0, -1
    for start, stop in wanted:
        head = bytes(data[at : at + MOST_FRAME])
        end = head.find(_HEAD_END)
        said = _CONTENT_RANGE.search(head[:end].replace(b"\r", b"")) if end >= 0 else None
        if said is None or (int(said[1]), int(said[2])) != (start, stop - 1) or size not in (-1, int(said[3])):
            return None
        begin = at + end + len(_HEAD_END)
        at, size = begin + stop - start, int(said[3])
        found.append(data[begin:at])
    if at > len(data) or bytes(data[at : at + 4]) != b"\r\n--":
        return None
    return found, size
