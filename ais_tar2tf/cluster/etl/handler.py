"""The HTTP handler of the ETL service: answers requests to transform shards.

The requests come from *targets*, the servers of AIStore that store objects.

The handler must not open connections (`sources.py` and `delivery.py` do), and must not start threads (`service.py`
does).

A target passes a shard in one of three ways, which AIStore calls communication mechanisms:

hpush   PUT /OBJECT      the shard is the request's body, or a local file that the query names (etl_fqn)
hpull   GET /OBJECT      this service fetches the shard from the target, or reads the file that the query names
ws      GET /ws          a WebSocket: for each shard a control message, then the shard, then the output

By default, the response holds the output. If the request names other nodes of the cluster, the handler instead puts
the output to the first of these nodes (a *direct put*). Such a node may be a *transformer*, which is another ETL
service, and may return its own output. Then the response holds this output. Otherwise the response confirms the put.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.cluster.etl.delivery import LENGTH, NODE, Delivered, deliver
from ais_tar2tf.cluster.etl.sources import RequestBody, file_blocks, pulled_blocks, shard_url
from ais_tar2tf.cluster.etl.websocket import TEXT, ClosedError, Socket, accept_key
from ais_tar2tf.errors import AccessDenied, SchemaError, ShardNotFound, StoreError, Tar2TFError
from ais_tar2tf.options import MIB
from ais_tar2tf.stores.transport.answers import length_of

if TYPE_CHECKING:
    from ais_tar2tf.cluster.etl.service import Service, TransformerServer

__all__ = ["Handler"]

_CONTROL_BYTES = 1 * MIB  # the largest control message, which holds names and arguments
_IDLE_SECONDS = 600.0  # how long a silent connection stays open: targets reuse their connections
_DRAINED_BYTES = 1 * MIB  # if more of a body is left after a response, the connection is closed
_ERROR_CHARS = 2_000  # the longest text of an error in a response
_GOING_AWAY, _INTERNAL_ERROR = 1001, 1011  # RFC 6455's codes for the end of a WebSocket
_PUT_DONE = "direct put success"  # tells the target, on a WebSocket, that another node got the output


class Handler(BaseHTTPRequestHandler):
    """Handles one connection: answers its requests, one after another."""

    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024
    timeout = _IDLE_SECONDS
    server: TransformerServer  # pyright: ignore[reportIncompatibleVariableOverride]
    _status_sent = False  # whether the status of the current response was sent

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Log nothing: a line for every shard would be too much."""

    @property
    def service(self) -> Service:
        return self.server.service

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def do_PUT(self) -> None:  # http.server's name
        """Transform the shard that a target pushes (hpush)."""
        body = self._body()
        if body is None:
            return
        if not self._is_allowed():
            self._forbid(body)
        else:
            file = self.query.get("etl_fqn")
            self._transform(file_blocks(file, self.service.roots) if file else body, body)

    def do_GET(self) -> None:
        """Transform a shard that the service pulls (hpull), serve a WebSocket (ws), or report the health."""
        body = self._body()
        if body is None:
            return
        allowed = self._is_allowed()
        path = urlsplit(self.path).path
        if path in ("/health", "/ready", "/live"):
            healthy = self.service.ready or path == "/live"
            self._respond(200 if healthy else 503, "Running" if healthy else "not ready")
            self._drain(body)
        elif allowed:
            self._pull_or_serve_websocket(body)
        else:
            self._forbid(body)

    def _pull_or_serve_websocket(self, body: RequestBody) -> None:
        path, query = urlsplit(self.path).path, self.query
        if path == "/ws":
            self._serve_websocket()
        elif "etl_fqn" in query:
            self._transform(file_blocks(query["etl_fqn"], self.service.roots), body)
        else:
            forwarded = {name: value for name, value in query.items() if not name.startswith("etl_")}
            self._transform(pulled_blocks(self.service.target, path, forwarded, self.service.timeouts), body)

    def _body(self) -> RequestBody | None:
        """Return the request's body, or None after refusing the request because the body's length is unclear."""
        lengths = self.headers.get_all("Content-Length") or []
        codings = self.headers.get_all("Transfer-Encoding") or []
        if codings and not lengths and [each.strip().lower() for each in codings] == ["chunked"]:
            return RequestBody(self.rfile, None)
        if not codings and not lengths:
            return RequestBody(self.rfile, 0)
        length = length_of(self.headers) if len(lengths) == 1 and not codings else None
        if length is not None:
            return RequestBody(self.rfile, length)
        self.close_connection = True
        self._respond(400, "the length of the request's body is stated twice, malformed, or too large")
        return None

    def _is_allowed(self) -> bool:
        """Return whether this client may send shards.

        If the service has a secret, `self.path` must begin with the secret, which is then removed from the path.
        Otherwise, the client must be on this host or a node of the cluster.
        """
        service = self.service
        if not service.secret:
            return service.peers.allows_client(str(self.client_address[0]))
        first, _, rest = self.path[1:].partition("/")
        if not hmac.compare_digest(first.encode("utf-8", "surrogateescape"), service.secret.encode()):
            return False
        self.path = f"/{rest}"
        return True

    def _forbid(self, body: RequestBody) -> None:
        self._respond(403, "the URL must contain the service's secret, or the client must be a target of the cluster")
        self._drain(body)

    def _drain(self, body: RequestBody) -> None:
        """Read and drop the rest of a body, so that this rest is not parsed as the next request.

        If the rest is longer than `_DRAINED_BYTES`, stop reading, and have the connection closed after the response.
        """
        read = 0
        try:
            while not body.at_end and read <= _DRAINED_BYTES:
                read += len(next(body, b""))
        except (ConnectionError, TimeoutError):
            pass
        self.close_connection |= not body.at_end

    def _transform(self, blocks: Iterator[bytes], body: RequestBody) -> None:
        """Transform a shard and respond with the output.

        An error before the first piece of output becomes an HTTP status. A later error closes the connection before
        the last chunk, so that the target notices that the output is incomplete.
        """
        arguments, path = self.query.get("etl_args", ""), urlsplit(self.path).path
        self._status_sent = False
        self.server.busy.add(threading.current_thread())
        try:
            with self.service.workers:
                output = self._output(blocks, arguments, path)
                nodes = self.headers.get(NODE, "")
                if nodes:
                    self._put_directly(output, nodes, path, arguments)
                    return
                first = next(output, b"")
                self._respond_in_chunks(chain([first], output))
        except Exception as error:  # noqa: BLE001  # every error is reported to the target
            client_left = isinstance(error, ConnectionError) and not isinstance(error, Tar2TFError)
            if self._status_sent or client_left:
                self.close_connection = True
            else:
                self._respond_with_error(error, body)
        finally:
            self._drain(body)
            self.close_connection |= self.service.closing
            self.server.busy.discard(threading.current_thread())
            if isinstance(blocks, Generator):  # a generator may hold an open file or connection
                blocks.close()

    def _output(self, blocks: Iterable[bytes], arguments: str, path: str) -> Iterator[bytes]:
        return self.service.transform.run(blocks, _shard_in(arguments) or shard_url(path))

    def _deliver(self, output: Iterator[bytes], nodes: str, path: str, arguments: str) -> Delivered:
        service = self.service
        return deliver(
            output,
            nodes,
            target=service.target,
            path=path,
            arguments=arguments,
            timeouts=service.timeouts,
            peers=service.peers,
        )

    def _put_directly(self, output: Iterator[bytes], nodes: str, path: str, arguments: str) -> None:
        """Put the output to the first of `nodes`, and respond.

        If the first node is a transformer that returned its own output, the response holds this output. Otherwise the
        response confirms the put.
        """
        done = self._deliver(output, nodes, path, arguments)
        if done.content is not None:
            with closing(done.content) as content:
                self._respond_in_chunks(content)
            return
        self._status_sent = True
        self.send_response(done.status)
        self.send_header(LENGTH, str(done.length))
        self.end_headers()

    def _respond_in_chunks(self, pieces: Iterable[bytes]) -> None:
        self._status_sent = True
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n" % len(piece))
                self.wfile.write(piece)
                self.wfile.write(b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _respond_with_error(self, error: Exception, body: RequestBody) -> None:
        """Read the whole body, then respond with the error: a client reads no response while it still sends."""
        with suppress(ConnectionError, TimeoutError):
            for _ in body:
                pass
            self._status_sent = True
            self._respond(_error_status(error), _error_text(error))

    def _respond(self, status: int, text: str) -> None:
        data = text.encode(errors="replace")  # the name of a shard is not always UTF-8
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _serve_websocket(self) -> None:
        """Transform shards until the target closes the WebSocket or the service stops."""
        self.close_connection = True
        key = self.headers.get("Sec-WebSocket-Key")
        if not key or self.headers.get("Upgrade", "").lower() != "websocket":
            self._respond(400, "/ws expects the handshake of a WebSocket")
            return
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept_key(key))
        self.end_headers()
        self.wfile.flush()
        socket = Socket(cast("Any", self.rfile), cast("Any", self.wfile))
        try:
            while not self.service.closing:
                control = _parse_control(socket.whole_message(_CONTROL_BYTES))
                self.server.busy.add(threading.current_thread())
                try:
                    self._transform_message(socket, control)
                finally:
                    self.server.busy.discard(threading.current_thread())
            socket.close(_GOING_AWAY, "the service ends")
        except Exception as error:  # noqa: BLE001  # every error is reported to the target
            if isinstance(error, OSError) and not isinstance(error, Tar2TFError):
                return  # the target has closed the connection
            with suppress(OSError):
                socket.close(_INTERNAL_ERROR, _error_text(error))  # to the target, a text message would mean success

    def _transform_message(self, socket: Socket, control: dict[str, Any]) -> None:
        """Transform the shard that a control message announces. Send the output, or put it to the next node."""
        file, path = str(control.get("fqn") or ""), str(control.get("path") or "")
        arguments, nodes = str(control.get("etl_args") or ""), str(control.get("pipeline") or "")
        blocks = file_blocks(file, self.service.roots) if file else socket.message()
        with self.service.workers:
            output = self._output(blocks, arguments, path)
            if not nodes:
                socket.send(output)
                return
            done = self._deliver(output, nodes, path, arguments)
            if done.content is not None:
                with closing(done.content) as content:
                    socket.send(content)
            else:
                socket.send(iter([_PUT_DONE.encode()]), TEXT)


def _parse_control(message: bytes) -> dict[str, Any]:
    try:
        document: Any = json_value(message)
    except SchemaError as error:
        raise ClosedError(f"the control message is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise ClosedError("the control message is not a JSON object")
    return cast("dict[str, Any]", document)


def _shard_in(arguments: str) -> str:
    """Return the shard's URL if `etl_args` states it, else "". On a WebSocket, nothing else names the bucket."""
    try:
        document: Any = json_value(arguments) if arguments else None
    except SchemaError:
        return ""
    return str(document.get("shard") or "") if isinstance(document, dict) else ""


def _error_status(error: Exception) -> int:
    if isinstance(error, AccessDenied):
        return 403
    if isinstance(error, ShardNotFound):
        return 404
    if isinstance(error, StoreError):
        return 502
    return 422 if isinstance(error, Tar2TFError) else 500


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
