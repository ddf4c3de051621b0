"""The passage of objects through a transformer, as a real target does it with hpush."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from ais_tar2tf.base import forking
from ais_tar2tf.cluster.server.refusals import RefusedError

__all__ = ["Passage"]

PIECE = 256 * 1024  # bytes read and sent at once
_TIMEOUT = 600.0  # seconds for each wait: an ETL's object_timeout
_ERROR_BYTES = 4096  # of a transformer's error that are passed on


class Passage(Iterator[bytes]):
    """One object on its way through a transformer: call `begin`, then iterate over the output.

    Another thread may call `close` at any time; that ends the exchange.
    """

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT)
        self._prefix = urlsplit(url).path.rstrip("/")
        self._lock = forking.lock()  # `close` sees the sending either started or not begun
        self._socket: socket.socket | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._sending: threading.Thread | None = None
        self._closed = False

    def begin(self, name: str, file: io.FileIO, size: int, arguments: str) -> None:
        """Send the object, and return when the transformer begins to answer.

        Args:
            name: BUCKET/OBJECT.
            file: The object.
            size: Its bytes.
            arguments: The value of `etl_args`.

        Raises:
            RefusedError: The transformer does not answer, or answers with an error.
        """
        try:
            self._answer = answer = self._send_request(name, file, size, arguments)
            text = b"" if answer.status == http.client.OK else answer.read(_ERROR_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise RefusedError(500, f"the transformer does not answer ({type(error).__name__})") from error
        if answer.status != http.client.OK or self._closed:
            self.close()
            raise RefusedError(answer.status, f"ETL error: {text.decode('utf-8', 'replace')}")

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
            with suppress(OSError):  # the socket may be closed
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the threads that read and send
        if self._answer is not None:
            self._answer.close()
        self._connection.close()
        if self._sending is not None:
            self._sending.join()

    def _send_request(self, name: str, file: io.FileIO, size: int, arguments: str) -> http.client.HTTPResponse:
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
            # In another thread, because the output begins while the object is still being sent.
            self._sending = threading.Thread(target=_send, args=(sock, file), name="ais-server-etl", daemon=True)
            self._sending.start()
        return connection.getresponse()


def _send(sock: socket.socket, file: io.FileIO) -> None:
    with suppress(OSError, ValueError):  # the transformer's answer tells why
        while piece := file.read(PIECE):
            sock.sendall(piece)
