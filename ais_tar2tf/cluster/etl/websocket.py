"""The server's side of a WebSocket (RFC 6455), after its handshake.

Messages are read and written piece by piece, so that no message has to fit into memory. This module must not
interpret messages.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ais_tar2tf.options import MIB

__all__ = ["BINARY", "TEXT", "ClosedError", "Socket", "accept_key"]

TEXT, BINARY = 1, 2
_CONTINUED, _CLOSE, _PING, _PONG = 0, 8, 9, 10
_DATA, _CONTROL = frozenset({_CONTINUED, TEXT, BINARY}), frozenset({_CLOSE, _PING, _PONG})  # others are reserved
_FIN, _MASKED = 0x80, 0x80
_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # the RFC's constant
_PIECE = 1 * MIB  # the most bytes of a frame that are read at once
_MOST_CONTROL = 125  # the most bytes that the RFC allows in a control frame (close, ping, pong)


class ClosedError(ConnectionError):
    """The other side closed the connection, or does not follow the protocol."""


def accept_key(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept for a client's Sec-WebSocket-Key.

    >>> accept_key("dGhlIHNhbXBsZSBub25jZQ==")
    's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
    """
    return base64.b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode(), usedforsecurity=False).digest()).decode()


class Socket:
    """The server's end of a WebSocket whose handshake is done. It reads from one stream and writes to another."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._in = incoming
        self._out = outgoing

    def message(self) -> Iterator[bytes]:
        """Yield the pieces of the next message. The caller must read all pieces before it asks for another message.

        Control frames between the pieces are handled: a ping is answered, and a close frame raises `ClosedError`.
        """
        final = False
        first = True
        while not final:
            final, kind, length, mask = self._read_header()
            if kind in _CONTROL:
                if not final:
                    raise ClosedError("a control frame is in fragments")
                self._answer_control(kind, length, mask)
                final = False
                continue
            if (kind == _CONTINUED) is first:
                raise ClosedError("a message's frames are out of order")
            first = False
            yield from self._payload(length, mask)

    def whole_message(self, most: int) -> bytes:
        """Return the next message; raise `ClosedError` if it has more than `most` bytes."""
        pieces: list[bytes] = []
        for piece in self.message():
            pieces.append(piece)
            if sum(map(len, pieces)) > most:
                raise ClosedError(f"a control message has over {most:,} bytes")
        return b"".join(pieces)

    def send(self, pieces: Iterator[bytes], kind: int = BINARY) -> None:
        """Send one message, with a frame for each piece."""
        pending = next(pieces, b"")
        for piece in pieces:
            self._send_frame(kind, pending, final=False)
            kind, pending = _CONTINUED, piece
        self._send_frame(kind, pending, final=True)

    def close(self, code: int, reason: str) -> None:
        """Send a close frame with one of the RFC's status codes, and a reason, which is cut off if it is too long."""
        cut = reason.encode(errors="replace")[: _MOST_CONTROL - 2].decode(errors="ignore")  # after a whole character
        self._send_frame(_CLOSE, struct.pack(">H", code) + cut.encode(), final=True)

    def _read_header(self) -> tuple[bool, int, int, bytes]:
        """Return (final, kind, length, mask) of the next frame. `final` is true for the last frame of a message."""
        begin = self._exactly(2)
        length = begin[1] & 0x7F
        if not begin[1] & _MASKED or begin[0] & 0x70:
            raise ClosedError("a client's frames are masked, and use no extensions")
        kind = begin[0] & 0x0F
        if kind not in _DATA | _CONTROL:
            raise ClosedError(f"a frame has the reserved opcode {kind}")
        if length == 126:
            (length,) = struct.unpack(">H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._exactly(8))
        return bool(begin[0] & _FIN), kind, length, self._exactly(4)

    def _answer_control(self, kind: int, length: int, mask: bytes) -> None:
        if length > _MOST_CONTROL:
            raise ClosedError("a control frame is too long")
        payload = b"".join(self._payload(length, mask))
        if kind == _CLOSE:
            raise ClosedError("closed by the other side")
        if kind == _PING:
            self._send_frame(_PONG, payload, final=True)

    def _payload(self, length: int, mask: bytes) -> Iterator[bytes]:
        """Yield the unmasked payload of a frame, piece by piece."""
        while length > 0:
            size = min(length, _PIECE)  # a multiple of the mask's length, except for the last piece
            data = np.frombuffer(self._exactly(size), np.uint8)
            key = np.resize(np.frombuffer(mask, np.uint8), size)
            length -= size
            yield (data ^ key).tobytes()

    def _exactly(self, size: int) -> bytes:
        data = self._in.read(size)
        if len(data) < size:
            raise ClosedError("the connection broke off")
        return data

    def _send_frame(self, kind: int, payload: bytes, *, final: bool) -> None:
        size = len(payload)
        begin = bytes((kind | (_FIN if final else 0),))
        if size < 126:
            begin += bytes((size,))
        elif size < 1 << 16:
            begin += struct.pack(">BH", 126, size)
        else:
            begin += struct.pack(">BQ", 127, size)
        self._out.write(begin + payload if size < _MOST_CONTROL else begin)
        if size >= _MOST_CONTROL:
            self._out.write(payload)
        self._out.flush()
