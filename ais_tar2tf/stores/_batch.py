"""The answer to AIStore's GetBatch: one tar of what was asked for, in that order. No I/O."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence

__all__ = ["unpacked"]


def unpacked(data: bytes, wanted: Sequence[tuple[str, int, int]]) -> list[bytes] | None:
    """The bytes of each (name, start, stop), or None unless all of them are there as they were asked for."""
    found: list[bytes] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as answer:
            for name, start, stop in wanted:
                info = answer.next()
                if info is None or info.name != name or info.size != stop - start:
                    return None
                body = answer.extractfile(info)
                if body is None:
                    return None
                found.append(body.read())
            if answer.next() is not None:
                return None
    except tarfile.TarError:
        return None
    return found
