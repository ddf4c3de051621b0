"""One `Range` header and a size become a span of bytes; it must not do I/O."""

from __future__ import annotations

import re
from http import HTTPStatus

from ais_tar2tf.server.refusals import RefusedError

__all__ = ["parse_range"]

_SINGLE = re.compile(r"bytes=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Give (start, count); None without a header; refuse what AIStore refuses: several, malformed, outside.

    >>> parse_range("bytes=2-5", 100), parse_range("bytes=90-", 100), parse_range("bytes=-5", 100)
    ((2, 4), (90, 10), (95, 5))
    """
    if header is None:
        return None
    match = _SINGLE.fullmatch(header.strip())
    if match is None or match.group(1) == match.group(2) == "":
        raise _unsatisfiable(header, size)
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise _unsatisfiable(header, size)
    return start, end - start


def _unsatisfiable(header: str, size: int) -> RefusedError:
    return RefusedError(
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        f"invalid range {header!r}: one range within {size} bytes is served",
        headers={"Content-Range": f"bytes */{size}"},
    )
