"""The bytes of one member, gathered from pieces; it does no I/O."""

from __future__ import annotations

from io import BytesIO

from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.options import MIB

__all__ = ["Content"]

_LARGE = 16 * MIB  # above it memory costs more than time: below, joining is several times as quick as growing


class Content:
    """Of `expected` bytes, as a header says; nothing is set aside for them. A large one is never there twice."""

    __slots__ = ("_grown", "_pieces", "size")

    def __init__(self, expected: int) -> None:
        self.size: int = 0
        self._pieces: list[bytes] = []
        self._grown = BytesIO() if expected > _LARGE else None

    def add(self, piece: Bytes) -> None:
        self.size += len(piece)
        if self._grown is None:
            self._pieces.append(bytes(piece))
        else:
            self._grown.write(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces) if self._grown is None else self._grown.getvalue()
