"""The parser of `Range` headers. No I/O."""

from __future__ import annotations

from http import HTTPStatus

from ais_tar2tf.cluster.server.refusals import RefusedError

__all__ = ["parse_range"]

_BYTES = "bytes="
_STATUS = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def parse_range(header: str | None, size: int, name: str = "") -> tuple[int, int] | None:
    """Return the offset of the first requested byte and the number of bytes; None if there is no header.

    Args:
        header: The value of the header, if the request has one.
        size: The object's size.
        name: The object's name, for messages.

    Raises:
        RefusedError: AIStore, too, refuses this header, with the same message.

    >>> parse_range("bytes=2-5", 100), parse_range("bytes=90-", 100), parse_range("bytes=-5", 100)
    ((2, 4), (90, 10), (95, 5))
    """
    if header is None:
        return None
    header = header.strip()
    if not header.startswith(_BYTES):
        raise _invalid(header, "(prefix)")
    ranges = header.removeprefix(_BYTES)
    if "," in ranges:
        raise RefusedError(_STATUS, f"cannot multi-range read {name} - operation not supported", code="ErrUnsupp")
    first, dash, last = (text.strip() for text in ranges.strip().partition("-"))
    if not dash or first == last == "":
        raise _invalid(ranges, "as per RFC 7233 Section 2.1")
    if not first:  # the last N bytes; for N = 0, AIStore answers with no bytes
        count = min(_number(last, ranges, "(end)"), size)
        return size - count, count
    start = _number(first, ranges, "(start)")
    if start >= size:
        message = f"size={size}: not satisfiable range [{ranges}]"
        headers = {"Content-Range": f"bytes */{size}"}
        raise RefusedError(_STATUS, message, code="ErrRangeNotSatisfiable", headers=headers)
    end = min(_number(last, ranges, "(end)") + 1, size) if last else size
    if start >= end:
        raise _invalid(ranges, "(end)")
    return start, end - start


def _number(text: str, ranges: str, part: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _invalid(ranges, part)
    return int(text)


def _invalid(ranges: str, why: str) -> RefusedError:
    return RefusedError(_STATUS, f'read range "{ranges}" is invalid {why}')
