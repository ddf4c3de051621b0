"""Objects passed through a transformer, asked as a real target asks (hpush); it must not know what that does."""

from __future__ import annotations

import http.client
import io
from collections.abc import Iterator
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
        connection.request("PUT", f"/{quote(name)}{query}", file, {"Content-Length": str(size)})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            said = answer.read(_MOST_SAID).decode("utf-8", "replace")
            raise RefusedError(answer.status, f"ETL error: {said}")
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise RefusedError(500, f"the transformer does not answer ({type(error).__name__})") from error
    except RefusedError:
        connection.close()
        raise
    return _pieces(connection, answer)


def _pieces(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while piece := answer.read(PIECE):
            yield piece
    except http.client.HTTPException as error:
        raise ConnectionError("the transformer's answer broke off") from error
    finally:
        connection.close()
