"""Direct put: the output goes to the next node, which a target names, and the target learns what became of it."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.errors import AccessDenied, StoreError, Tar2TFError, TransportError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores._pace import paced

__all__ = ["LENGTH", "NODE", "Delivered", "deliver"]

NODE = "Ais-Node-Url"
"""The header with the nodes that the output goes to, one after the other."""
LENGTH = "Ais-Direct-Put-Length"

_NOTHING = 204
_MOST_SAID = 4096  # bytes of an error that are passed on


@dataclass(frozen=True)
class Delivered:
    """A status, what was put, and what came back instead of being stored: the output of a later transformer."""

    status: int
    length: int
    content: _Content | None = None


def deliver(
    pieces: Iterable[bytes],
    nodes: str,
    *,
    target: str,
    path: str,
    arguments: str,
    timeouts: Timeouts,
    peers: Peers,
) -> Delivered:
    """PUT the pieces to the first node, with the others in a header.

    Raises:
        AccessDenied: The node is none of `peers`.
        TransportError: The node did not take the output.
    """
    first, _, others = nodes.partition(",")
    parts, host = urlsplit(first.strip()), urlsplit(target)
    where = f"{host.path.rstrip('/')}/{parts.path.lstrip('/')}" if parts.path.strip("/") else path
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | ({"etl_args": arguments} if arguments else {})
    shown = f"{parts.scheme}://{parts.netloc}"
    if (host.scheme or parts.scheme) != "http" or not parts.netloc:
        raise StoreError("a node to put the output to is named by an http:// URL", url=shown)
    if not peers.allows_node(shown):
        raise AccessDenied(
            "this node is no target of the cluster: name it by --node (nodes=) if output is to go there",
            url=shown,
            status=403,
        )
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeouts.idle)
    connection.response_class = paced(timeouts)
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for piece in pieces:
            sent += len(piece)
            if piece:
                yield piece

    headers = {NODE: others} if others else {}
    asked = f"/{where.lstrip('/')}" + (f"?{urlencode(query)}" if query else "")
    with ExitStack() as stack:
        stack.callback(connection.close)
        try:
            connection.request("PUT", asked, counted(), headers, encode_chunked=True)
            answer = connection.getresponse()
            if answer.status == 200 and answer.length != 0:
                stack.pop_all()
                return Delivered(200, 0, _Content(connection, answer, shown))
            said = answer.read(_MOST_SAID).decode("utf-8", "replace")
        except Tar2TFError:  # of the shard: the node sees no last chunk, and stores nothing
            raise
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(f"the output could not be put there ({type(error).__name__})", url=shown) from error
    if answer.status not in (200, _NOTHING):
        raise TransportError(f"the output was refused with {answer.status}: {said}", url=shown)
    stated = answer.headers.get(LENGTH, "")
    return Delivered(_NOTHING, int(stated) if stated.isdigit() and stated != "0" else sent)


class _Content(Iterator[bytes]):
    """The rest of an answer; its connection is closed behind it, also when nobody asks for the first piece."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, shown: str) -> None:
        self._connection = connection
        self._answer = answer
        self._shown = shown

    def __next__(self) -> bytes:
        try:
            piece = self._answer.read(MIB)
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"the output of the next transformer broke off ({type(error).__name__}: {error})", url=self._shown
            ) from error
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
