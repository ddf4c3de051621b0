"""The answers of the pool. Bodies are read from the socket into the caller's buffer. Nothing is retried here."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.stores.base import Body, Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores.transport.answers import error_for, identity_of, info_in
from ais_tar2tf.stores.transport.pace import PacedResponse
from ais_tar2tf.stores.transport.redirects import REDIRECTS

__all__ = ["Answer", "HttpBody", "body_of", "info_of", "range_header"]

_ERROR_BODY = 4096  # bytes of an error's explanation that are read
_CONTENT_RANGE = re.compile(
    r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)"
)  # Python refuses numbers that are too long


@dataclass(slots=True)
class Answer:
    """An answer whose status and headers were received. The caller must finish it, or read its body to the end."""

    connection: http.client.HTTPConnection
    give_back: Callable[[http.client.HTTPConnection], None]  # returns a reusable connection to the pool
    response: PacedResponse
    idle: float  # seconds without a byte until the read fails
    shown: str  # the URL for errors, without secrets
    interrupt: Interrupt
    sock: socket.socket
    secrets: tuple[str, ...] = ()  # texts to cut out of the server's messages
    _done: bool = field(default=False)

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def redirect(self) -> str | None:
        """The Location of a redirect; None for every other answer."""
        return self.response.getheader("Location") if self.status in REDIRECTS else None

    def drain(self) -> bytes:
        """Read a short body, so that the connection can be used again. A connection with a longer body is closed."""
        try:
            return self._read(_ERROR_BODY)
        except TransportError:
            return b""

    def content(self, max_bytes: int) -> bytes:
        """Return the body. A body of known length is incomplete if the server closed the connection early.

        Raises:
            TransportError: The connection broke, or a chunked body ended early.
            StoreError: The body has more than `max_bytes` bytes.
        """
        body = self._read(max_bytes + 1)
        if len(body) > max_bytes:
            raise StoreError(f"more than {max_bytes:,} bytes came, and fewer were asked for", url=self.shown)
        return body

    def _read(self, max_bytes: int) -> bytes:
        """Finish this answer, and return at most `max_bytes` bytes of its body."""
        try:
            body = self.response.read(max_bytes)
        except (OSError, http.client.HTTPException) as error:
            self.finish(reusable=False)
            raise self.broken(error) from error
        self.finish(reusable=self.response.isclosed() and not self.response.will_close)
        return body

    def broken(self, error: Exception) -> TransportError:
        """Return the error for a body that ended too early."""
        return TransportError(f"the body broke off ({type(error).__name__}: {error})", url=self.shown)

    def error(self) -> StoreError:
        """Finish this answer, and return the error for its status."""
        body = self.drain()
        return error_for(self.status, self.shown, self.response.headers, body, self.secrets)

    def hand_over(self, interrupt: Interrupt) -> None:
        """Let another Interrupt end the waits for the server from now on."""
        self.interrupt.forget(self.sock)
        self.interrupt = interrupt
        interrupt.watch(self.sock)

    def finish(self, *, reusable: bool) -> None:
        """Stop reading. The connection is kept for reuse if the body was read to its end, and closed otherwise."""
        if self._done:
            return
        self._done = True
        self.interrupt.forget(self.sock)
        self.response.close()
        if reusable and self.connection.sock is not None and not self.interrupt.fired:
            self.connection.sock.settimeout(self.idle)
            self.give_back(self.connection)
        else:
            self.connection.close()


class HttpBody(Body):
    """The body of an HTTP answer. Without TLS, the kernel writes a body of known length directly into the buffer."""

    def __init__(
        self, answer: Answer, info: ObjectInfo, start: int, length: int | None, *, stop: int | None = None
    ) -> None:
        self.info = info
        self.start = start
        self.stop = stop if length is None else start + length
        self._answer = answer
        self._left: int | None = length  # None: chunked, or until the connection closes
        self._sock: socket.socket | None = None
        self._buffered = 0
        sock: Any = answer.connection.sock  # None where the connection will be closed after this answer
        if isinstance(sock, socket.socket) and not isinstance(sock, ssl.SSLSocket) and self._left:
            # The response has a buffer of its own, with the bytes that came with the headers.
            try:
                self._buffered = min(len(answer.response.fp.peek()), self._left)
            except OSError as error:
                answer.finish(reusable=False)
                raise self._answer.broken(error) from error
            self._sock = sock
            sock.settimeout(None)  # SO_RCVTIMEO applies: one system call then fills a whole buffer

    def readinto(self, buffer: memoryview) -> int:
        if self._left is not None:
            buffer = buffer[: self._left]
        if not buffer:
            return 0
        try:
            count = self._read_socket(buffer) if self._sock is not None else self._read_response(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise self._answer.broken(error) from error
        if self._left is not None:
            self._left -= count
        return count

    def hand_over(self, interrupt: Interrupt | None) -> None:
        """Let another reader receive from now on. Its Interrupt then ends the waits."""
        self._answer.hand_over(interrupt or Interrupt())

    def close(self) -> None:
        finished = self._left == 0 if self._left is not None else self._answer.response.isclosed()
        self._answer.finish(reusable=finished and not self._answer.response.will_close)

    def _read_response(self, buffer: memoryview) -> int:
        """Read once. HTTPResponse.readinto would lose the bytes that were received before the connection broke."""
        response = self._answer.response
        if self._left is None:
            data = response.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count = response.fp.readinto1(buffer)
        if not count:
            raise ConnectionResetError(f"it ended {self._left:,} bytes early")
        return count

    def _read_socket(self, buffer: memoryview) -> int:
        """Fill the buffer with one system call: MSG_WAITALL waits in the kernel, without the interpreter's lock."""
        assert self._sock is not None
        if self._buffered:
            count = self._answer.response.fp.readinto1(buffer[: self._buffered])
            self._buffered -= count
            return count
        pace = self._answer.response.pace
        began = pace.clock()
        while True:
            try:
                count = self._sock.recv_into(buffer, 0, socket.MSG_WAITALL)
            except BlockingIOError:  # no byte came within the socket's SO_RCVTIMEO
                if pace.clock() - began >= self._answer.idle:
                    raise TimeoutError(f"nothing came for {self._answer.idle:g} s") from None
                continue
            if not count:
                raise ConnectionResetError(f"it ended {self._left:,} bytes early")
            pace.note(count, pace.clock() - began)
            return count


def range_header(start: int, stop: int | None) -> dict[str, str]:
    """Return the header that requests a range; no header for a whole object."""
    if start == 0 and stop is None:
        return {}
    return {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def info_of(answer: Answer, name: str) -> ObjectInfo:
    """Finish the answer to a HEAD, and return the properties of the object."""
    if answer.status != 200:
        raise answer.error()
    answer.drain()
    return info_in(answer.response.headers, name)


def body_of(answer: Answer, name: str, start: int, stop: int | None) -> HttpBody | None:
    """Return the body of an answer to a request for a range.

    Args:
        answer: The answer after all redirects.
        name: The name of the object.
        start: The offset that was requested.
        stop: The end that was requested; None for the end of the object.

    Returns:
        None if a range from 0 is refused, as of an empty object. Then request the whole object.

    Raises:
        StoreError: The request failed, or the answer has another range.
    """
    headers = answer.response.headers
    if answer.status == 200:
        size = answer.response.length
        return HttpBody(answer, ObjectInfo(name, size, identity_of(headers, size)), 0, size)
    found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if answer.status == 206:
        length = answer.response.length
        if found is None or int(found[1]) != start or length not in (None, int(found[2]) + 1 - start):
            answer.finish(reusable=False)
            got = f"Content-Range {headers.get('Content-Range')!r}, Content-Length {length}"
            raise TransportError(f"asked for bytes from {start}, got {got}", url=answer.shown)
        size = None if found[3] == "*" else int(found[3])
        info = ObjectInfo(name, size, identity_of(headers, size))
        return HttpBody(answer, info, start, length, stop=int(found[2]) + 1)
    if answer.status == 416 and start == 0 and stop is not None:
        answer.drain()
        return None
    if answer.status == 416 and headers.get("Content-Range", "") == f"bytes */{start}":
        answer.drain()  # the range begins at the end of the object
        return HttpBody(answer, ObjectInfo(name, start, Identity(size=start)), start, 0)
    raise answer.error()
