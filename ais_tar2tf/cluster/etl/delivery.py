"""Direct put: a transformer sends its output to another node, instead of back to the target.

A *target* is a server of AIStore that stores objects. A *transformer* is a server that transforms objects for a
target. The target's request names the nodes to which the output goes: other targets, or further transformers. This
module must not send output to a node that is not one of the transformer's `Peers`.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.errors import AccessDenied, StoreError, Tar2TFError, TransportError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores.transport.answers import length_of
from ais_tar2tf.stores.transport.pace import paced

__all__ = ["LENGTH", "NODE", "Delivered", "ReturnedOutput", "deliver"]

NODE = "Ais-Node-Url"
"""The header with the URLs of the nodes through which the output passes, in order, separated by commas."""

LENGTH = "Ais-Direct-Put-Length"
"""The header in which an answer states the number of bytes that were stored."""

_NO_CONTENT = 204
_ERROR_BYTES = 4096  # the most bytes of a node's error text that our error repeats


@dataclass(frozen=True)
class Delivered:
    """The answer of the node to which the output was sent.

    Attributes:
        status: The HTTP status: 200 if there is `content`, otherwise 204.
        length: The number of bytes that the node says were stored. If it does not say this, the number of bytes that
            were sent to it. 0 if there is `content`.
        content: The output of the next transformer, if the node returned this output instead of storing it.
    """

    status: int
    length: int
    content: ReturnedOutput | None = None


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
    """Send the output to the first of `nodes` by a PUT request, and name the remaining nodes in a header.

    Args:
        pieces: The output.
        nodes: The URLs of the nodes through which the output passes, separated by commas, as in the header `NODE`.
        target: The URL of the target that this transformer works for.
        path: The path of the target's request; it becomes the path of the PUT if the node's URL has no path.
        arguments: The value of the query parameter `etl_args` of the PUT; if empty, the parameter is left out.
        timeouts: The timeouts of the connection to the node.
        peers: The nodes that output may be sent to.

    Raises:
        AccessDenied: The node is not one of `peers`.
        StoreError: The URL of the node is not an http:// URL, or `target` is a URL with another scheme.
        TransportError: The node did not accept the output.
        Tar2TFError: The error that `pieces` raised.
    """
    first, _, remaining = nodes.partition(",")
    netloc, request_target = _route(first.strip(), target, path, arguments, peers)
    node = f"http://{netloc}"
    connection = http.client.HTTPConnection(netloc, timeout=timeouts.idle)
    connection.response_class = paced(timeouts)
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for piece in pieces:
            sent += len(piece)
            if piece:
                yield piece

    headers = {NODE: remaining} if remaining else {}
    with ExitStack() as stack:
        stack.callback(connection.close)
        try:
            connection.request("PUT", request_target, counted(), headers, encode_chunked=True)
            answer = connection.getresponse()
            if answer.status == 200 and answer.length != 0:
                stack.pop_all()
                return Delivered(200, 0, ReturnedOutput(connection, answer, node))
            text = answer.read(_ERROR_BYTES).decode("utf-8", "replace")
        except Tar2TFError:  # `pieces` failed: the last chunk is never sent, so the node stores nothing
            raise
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"the output could not be put to this node ({type(error).__name__})", url=node
            ) from error
    if answer.status not in (200, _NO_CONTENT):
        raise TransportError(f"the output was refused with {answer.status}: {text}", url=node)
    stored = length_of(answer.headers, LENGTH)
    return Delivered(_NO_CONTENT, sent if stored is None else stored)


def _route(url: str, target: str, path: str, arguments: str, peers: Peers) -> tuple[str, str]:
    """Return (host and port, path with query) of the PUT to a node. Refuse a node that is not in `peers`."""
    parts, own = urlsplit(url), urlsplit(target)
    node = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme != "http" or not parts.netloc:
        raise StoreError("a node to put the output to is named by an http:// URL", url=node)
    if own.scheme not in ("", "http"):  # the path of the URL may hold a secret, and is not shown
        raise StoreError(
            "the transformer's target must have an http:// URL if output is to be put to another node",
            url=f"{own.scheme}://{own.netloc}",
        )
    if not peers.allows_node(node):
        raise AccessDenied(
            "this node is no target of the cluster: name it by --node (nodes=) if output is to go there",
            url=node,
            status=403,
        )
    node_path = f"{own.path.rstrip('/')}/{parts.path.lstrip('/')}" if parts.path.strip("/") else path
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | ({"etl_args": arguments} if arguments else {})
    return parts.netloc, f"/{node_path.lstrip('/')}" + (f"?{urlencode(query)}" if query else "")


class ReturnedOutput(Iterator[bytes]):
    """The body of a node's answer, piece by piece. Always call `close()`, which closes the connection."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, node: str) -> None:
        self._connection = connection
        self._answer = answer
        self._node = node

    def __next__(self) -> bytes:
        try:
            piece = self._answer.read(MIB)
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"the output of the next transformer broke off ({type(error).__name__}: {error})", url=self._node
            ) from error
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
