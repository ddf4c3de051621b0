"""Objects passed through a transformer, asked as a real target asks (hpush); it must not know what that does."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from ais_tar2tf import forking
from ais_tar2tf.server.refusals import RefusedError

__all__ = ["Passage"]

PIECE = 256 * 1024
_PATIENCE = 600.0  # seconds for a shard: an ETL's object_timeout
_MOST_SAID = 4096  # bytes of an error


class Passage(Iterator[bytes]):
    """One object's way through a transformer: `begin` returns when that has begun to answer, then its output comes.

    `close` may come from another thread at any time, and ends what is under way.
    """

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE)
        self._prefix = urlsplit(url).path.rstrip("/")
        self._lock = forking.lock()  # around what `close` must see whole, or not begun
        self._socket: socket.socket | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._sending: threading.Thread | None = None
        self._closed = False

    def begin(self, name: str, file: io.FileIO, size: int, arguments: str) -> None:
        try:
            self._answer = answer = self._ask(name, file, size, arguments)
            said = b"" if answer.status == http.client.OK else answer.read(_MOST_SAID)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise RefusedError(500, f"the transformer does not answer ({type(error).__name__})") from error
        if answer.status != http.client.OK or self._closed:
            self.close()
            raise RefusedError(answer.status, f"ETL error: {said.decode('utf-8', 'replace')}")

    def __next__(self) -> bytes:
        assert self._answer is not None
        try:
            piece = self._answer.read(PIECE)
        except http.client.HTTPException as error:
            raise ConnectionError("the transformer's answer broke off") from error
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._socket is not None:
            with suppress(OSError):  # it may be closed
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or sends
        if self._answer is not None:
            self._answer.close()
        self._connection.close()
        if self._sending is not None:
            self._sending.join()

    def _ask(self, name: str, file: io.FileIO, size: int, arguments: str) -> http.client.HTTPResponse:
        query = f"?{urlencode({'etl_args': arguments})}" if arguments else ""
        connection = self._connection
        connection.connect()
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError("closed before it began")
            self._socket = sock = connection.sock
            connection.putrequest("PUT", f"{self._prefix}/{quote(name)}{query}")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            # The output comes while the object is still sent.
            self._sending = threading.Thread(target=_send, args=(sock, file), name="ais-server-etl", daemon=True)
            self._sending.start()
        return connection.getresponse()


def _send(sock: socket.socket, file: io.FileIO) -> None:
    with suppress(OSError, ValueError):  # what that means, the answer tells
        while piece := file.read(PIECE):
            sock.sendall(piece)
