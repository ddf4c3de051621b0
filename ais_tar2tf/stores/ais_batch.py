"""Requests and answers of AIStore's GetBatch. One request asks for ranges of many objects.

The answer is a tar with one member for each range. This module must not do I/O.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from typing import Any

from ais_tar2tf.options import KIB

__all__ = ["batch_request", "max_batch_bytes", "unpack"]

# The most bytes that a range takes in the tar besides its content: headers, a long name, padding, an error text.
_OVERHEAD_BYTES = 16 * KIB


def batch_request(ranges: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """Return the JSON document that requests each range, given as (name, start, length)."""
    items = [{"objname": name, "start": start, "length": length} for name, start, length in ranges]
    # "coer": continue on errors, such as a missing object. "strm": stream the tar while it is made.
    return {"in": items, "mime": ".tar", "coer": True, "strm": True}


def max_batch_bytes(ranges: Sequence[tuple[str, int, int]]) -> int:
    """Return the greatest possible size of the answer to a request for `ranges`."""
    # The last `_OVERHEAD_BYTES` are for the blocks that end the tar.
    return sum(length + _OVERHEAD_BYTES for *_, length in ranges) + _OVERHEAD_BYTES


def unpack(answer: bytes, ranges: Sequence[tuple[str, int, int]]) -> list[bytes] | None:
    """Return the bytes of each range; None if the answer is not a tar of exactly these ranges, in this order."""
    pieces: list[bytes] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:") as archive:
            for name, _, length in ranges:
                info = archive.next()
                if info is None or info.name != name or info.size != length:
                    return None
                body = archive.extractfile(info) if info.isreg() else None
                if body is None:
                    return None
                pieces.append(body.read())
            if archive.next() is not None:
                return None
    except (tarfile.TarError, ValueError, OverflowError):  # malformed sparse members and sizes raise the last two
        return None
    return pieces
