"""Objects passed through a transformer, asked as a real target asks (hpush); it must not know what that does."""

from __future__ import annotations

import http.client
import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from ais_tar2tf.server.refusals import RefusedError

__all__ = ["transformed"]

PIECE = 256 * 1024
_PATIENCE = 600.0  # seconds for a shard: an ETL's object_timeout
_MOST_SAID = 4096  # bytes of an error


def transformed(url: str, name: str, file: io.FileIO, size: int, arguments: str) -> Iterator[bytes]:
    """The output for one object, from when the transformer has begun to answer."""
    query = f"?{urlencode({'etl_args': arguments})}" if arguments else ""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE)
    try:
        connection.putrequest("PUT", f"/{quote(name)}{query}")
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        # The output comes while the object is still sent.
        sending = threading.Thread(target=_send, args=(connection, file), name="ais-server-etl", daemon=True)
        sending.start()
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise RefusedError(500, f"the transformer does not answer ({type(error).__name__})") from error
    if answer.status == http.client.OK:
        return _pieces(connection, answer, sending)
    said = answer.read(_MOST_SAID).decode("utf-8", "replace")
    sending.join()
    connection.close()
    raise RefusedError(answer.status, f"ETL error: {said}")


def _send(connection: http.client.HTTPConnection, file: io.FileIO) -> None:
    with suppress(OSError, ValueError):  # what that means, the answer tells
        while piece := file.read(PIECE):
            connection.send(piece)


def _pieces(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, sending: threading.Thread
) -> Iterator[bytes]:
    try:
        while piece := answer.read(PIECE):
            yield piece
    except http.client.HTTPException as error:
        raise ConnectionError("the transformer's answer broke off") from error
    finally:
        connection.close()
        sending.join()
