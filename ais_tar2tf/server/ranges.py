"""One `Range` header and a size become a span of bytes; it must not do I/O."""

from __future__ import annotations

from http import HTTPStatus

from ais_tar2tf.server.refusals import RefusedError

__all__ = ["parse_range"]

_BYTES = "bytes="
_STATUS = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def parse_range(header: str | None, size: int, name: str = "") -> tuple[int, int] | None:
    """Give (start, count); None without a header; refuse what AIStore refuses, in its words. `name` is the object's.

    >>> parse_range("bytes=2-5", 100), parse_range("bytes=90-", 100), parse_range("bytes=-5", 100)
    ((2, 4), (90, 10), (95, 5))
    """
    if header is None:
        return None
    header = header.strip()
    if not header.startswith(_BYTES):
        raise _invalid(header, "(prefix)")
    spans = header.removeprefix(_BYTES)
    if "," in spans:
        raise RefusedError(_STATUS, f"cannot multi-range read {name} - operation not supported", code="ErrUnsupp")
    first, dash, last = (part.strip() for part in spans.strip().partition("-"))
    if not dash or first == last == "":
        raise _invalid(spans, "as per RFC 7233 Section 2.1")
    if not first:  # the last so many bytes; AIStore gives none of them when none are asked for
        count = min(_number(last, spans, "(end)"), size)
        return size - count, count
    start = _number(first, spans, "(start)")
    if start >= size:
        message = f"size={size}: not satisfiable range [{spans}]"
        headers = {"Content-Range": f"bytes */{size}"}
        raise RefusedError(_STATUS, message, code="ErrRangeNotSatisfiable", headers=headers)
    end = min(_number(last, spans, "(end)") + 1, size) if last else size
    if start >= end:
        raise _invalid(spans, "(end)")
    return start, end - start


def _number(text: str, spans: str, which: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _invalid(spans, which)
    return int(text)


def _invalid(spans: str, why: str) -> RefusedError:
    return RefusedError(_STATUS, f'read range "{spans}" is invalid {why}')
