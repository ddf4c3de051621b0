"""The bytes of one member, collected from several blocks."""

from __future__ import annotations

from io import BytesIO

from ais_tar2tf.archive.members import Bytes
from ais_tar2tf.options import MIB

__all__ = ["MemberContent"]

# Larger content is appended to one buffer, which saves memory. Smaller content is kept as pieces that are joined at
# the end, which is several times as fast.
_LARGE = 16 * MIB


class MemberContent:
    """Collects the bytes of one member. Large content is never in memory twice.

    `expected` is the size that the member's header states. This size only decides how the bytes are collected. It
    reserves no memory, because the header may be wrong.
    """

    __slots__ = ("_large", "_pieces", "size")

    def __init__(self, expected: int) -> None:
        self.size: int = 0
        self._pieces: list[bytes] = []
        self._large = BytesIO() if expected > _LARGE else None

    def add(self, piece: Bytes) -> None:
        """Append a copy of the next bytes."""
        self.size += len(piece)
        if self._large is None:
            self._pieces.append(bytes(piece))
        else:
            self._large.write(piece)

    def whole(self) -> bytes:
        """Return all bytes that were added."""
        return b"".join(self._pieces) if self._large is None else self._large.getvalue()
