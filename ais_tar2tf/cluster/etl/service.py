"""The requests that an AIStore target makes of a transformer, answered: hpush, hpull, ws, and its health."""

from __future__ import annotations

import hmac
import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from ais_tar2tf import forking
from ais_tar2tf.cluster.etl.delivery import LENGTH, NODE, Delivered, deliver
from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.cluster.etl.sources import Body, file_blocks, pulled_blocks, shard_url
from ais_tar2tf.cluster.etl.transform import Transform
from ais_tar2tf.cluster.etl.websocket import TEXT, ClosedError, Socket, accept_key
from ais_tar2tf.errors import AccessDenied, SchemaError, ShardNotFound, StoreError, Tar2TFError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.values import json_value

__all__ = ["Service"]

_CONTROL = 1 * MIB  # of a control message: names and arguments
_STOP = 10.0  # seconds that shards under way have when the service stops
_POLL = 0.05  # seconds between two looks whether to stop
_BACKLOG = 512  # connections that wait: a target opens several for every job
_CONNECTIONS = 512  # open at once, each with a thread; a target opens a few for every job
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_QUIET = 600.0  # seconds without a byte until a connection is closed: a target's jobs keep theirs between objects
_DRAINED = 1 * MIB  # of a refused request's body that is read, so that its sender reads the answer
_SAID = 2_000  # characters of an error
_LEAVING = 1001  # "going away"
_DIGITS = 18  # of a length: more would be an exabyte
_FAILED = 1011  # why a talk ends: RFC 6455's "internal error"
_SUCCESS = "direct put success"


class Service:
    """A running transformer.

    `url` is where it takes shards. With a secret, the URL's path is the secret, and requests without it are refused;
    without one, requests are answered from this machine and from the cluster's targets alone. `ready` tells whether
    it takes shards; `/health` tells the cluster, and needs no secret.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        host: str,
        port: int,
        roots: Sequence[str] = (),
        target: str = "",
        workers: int | None = None,
        timeouts: Timeouts | None = None,
        secret: str = "",
        nodes: Sequence[str] = (),
    ) -> None:
        self.transform: Transform = transform
        self.roots: tuple[str, ...] = tuple(roots)
        self.target: str = target
        self.timeouts: Timeouts = timeouts or Timeouts()
        self.secret: str = secret
        self.peers: Peers = Peers(target, nodes, self.timeouts)
        self.ready: bool = False
        self.closing: bool = False
        self._turns = forking.semaphore(workers or os.cpu_count() or 1)  # shards that are worked on at once
        self._server = _Server((host, port), _Handler, self)
        address = self._server.server_address
        shown = str(address[0])
        listening = f"http://{'127.0.0.1' if shown == '0.0.0.0' else shown}:{address[1]}"  # noqa: S104
        self.url: str = f"{listening}/{secret}" if secret else listening
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), name="ais_tar2tf-etl", daemon=True
        )
        self._thread.start()
        threading.Thread(target=self._prepare, name="ais_tar2tf-etl-start", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """What is slow the first time is done before the cluster sends anything."""
        self.transform.prepare()
        self.ready = not self.closing

    def close(self) -> None:
        """Take no new shards, give those under way their time, and leave no thread or socket."""
        self.closing = True
        self.ready = False
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections(_STOP)
        self._server.server_close()

    @contextmanager
    def turn(self) -> Generator[None]:
        """What a shard holds while it is worked on is bounded, so the number of shards is."""
        with self._turns:
            yield


class _Server(ThreadingHTTPServer):
    request_queue_size = _BACKLOG
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], service: Service) -> None:
        self.service: Service = service
        self._open: dict[threading.Thread, Any] = {}
        self._lock = forking.lock()
        self.busy: set[threading.Thread] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread that `end_connections` knows before it runs."""
        with self._lock:
            full = len(self._open) >= _CONNECTIONS
        if full:
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._open[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(threading.current_thread(), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is the other side's business, and its log's."""

    def end_connections(self, seconds: float) -> None:
        """Cut those that wait for a request; then, after a while, the others."""
        for patience in (seconds, 1.0):
            ends = time.monotonic() + patience
            with self._lock:
                threads = dict(self._open)
            for thread, request in threads.items():
                if patience < seconds or thread not in self.busy:
                    with suppress(OSError):
                        request.shutdown(2)
            for thread in threads:
                thread.join(max(0.0, ends - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024
    timeout = _QUIET
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    _begun = False  # an answer that has its status already

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Nobody reads a line for every shard."""

    @property
    def service(self) -> Service:
        return self.server.service

    @property
    def asked(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def do_PUT(self) -> None:  # http.server's name
        """hpush: the shard is the body, or a file that is named."""
        body = self._body()
        if body is None:
            return
        if not self._admits():
            self._forbid(body)
        else:
            file = self.asked.get("etl_fqn")
            self._answer(file_blocks(file, self.service.roots) if file else body, body)

    def do_GET(self) -> None:
        """hpull: the shard is to be asked of the target; beside it /health and the handshake of ws."""
        body = self._body()
        if body is None:
            return
        admitted = self._admits()
        path = urlsplit(self.path).path
        if path in ("/health", "/ready", "/live"):
            well = self.service.ready or path == "/live"
            self._say(200 if well else 503, "Running" if well else "not ready")
            self._leave(body)
        elif admitted:
            self._get(body)
        else:
            self._forbid(body)

    def _get(self, body: Body) -> None:
        path, asked = urlsplit(self.path).path, self.asked
        if path == "/ws":
            self._talk()
        elif "etl_fqn" in asked:
            self._answer(file_blocks(asked["etl_fqn"], self.service.roots), body)
        else:
            passed = {name: value for name, value in asked.items() if not name.startswith("etl_")}
            self._answer(self._pulled(path, passed), body)

    def _body(self) -> Body | None:
        """Return the request's body; refuse a request whose end cannot be told for sure, and return None."""
        lengths = self.headers.get_all("Content-Length") or []
        codings = self.headers.get_all("Transfer-Encoding") or []
        if codings and not lengths and [each.strip().lower() for each in codings] == ["chunked"]:
            return Body(self.rfile, None)
        if not codings and not lengths:
            return Body(self.rfile, 0)
        if not codings and len(lengths) == 1 and lengths[0].isascii() and lengths[0].isdecimal():
            return Body(self.rfile, int(lengths[0][:_DIGITS]))
        self.close_connection = True
        self._say(400, "the request's length is stated twice, or not as HTTP has it")
        return None

    def _admits(self) -> bool:
        """Return whether this client may ask; take the secret off the path if it is there."""
        service = self.service
        if not service.secret:
            return service.peers.allows_client(str(self.client_address[0]))
        first, _, rest = self.path[1:].partition("/")
        if not hmac.compare_digest(first.encode("utf-8", "surrogateescape"), service.secret.encode()):
            return False
        self.path = f"/{rest}"
        return True

    def _forbid(self, body: Body) -> None:
        self._say(403, "requests are answered with the service's secret, or from the cluster's targets")
        self._leave(body)

    def _leave(self, body: Body) -> None:
        """Read what is left of a request's body, or close: it must not be taken for the next request."""
        read = 0
        try:
            while not body.whole and read <= _DRAINED:
                read += len(next(body, b""))
        except (ConnectionError, TimeoutError):
            pass
        self.close_connection |= not body.whole

    def _pulled(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        with pulled_blocks(self.service.target, path, query, self.service.timeouts) as blocks:
            yield from blocks

    def _answer(self, blocks: Iterator[bytes], body: Body) -> None:
        """The output. An error before its first piece has a status; one behind it ends the connection."""
        asked, path = self.asked, urlsplit(self.path).path
        self._begun = False
        self.server.busy.add(threading.current_thread())
        try:
            with self.service.turn():
                pieces = self._transformed(blocks, asked.get("etl_args", ""), path)
                nodes = self.headers.get(NODE, "")
                if nodes:
                    self._put_directly(pieces, nodes, path, asked.get("etl_args", ""))
                    return
                first = next(pieces, b"")
                self._send(chain([first], pieces))
        except Exception as error:  # noqa: BLE001  # whatever it is, the target is told
            left = isinstance(error, ConnectionError) and not isinstance(error, Tar2TFError)
            if self._begun or left:
                self.close_connection = True  # without the last chunk, so that nobody takes it for whole
            else:
                self._refuse(error, body)
        finally:
            self._leave(body)
            self.close_connection |= self.service.closing
            self.server.busy.discard(threading.current_thread())
            _close(blocks)

    def _transformed(self, blocks: Iterable[bytes], arguments: str, path: str) -> Iterator[bytes]:
        return self.service.transform.run(blocks, _said_shard(arguments) or shard_url(path))

    def _delivered(self, pieces: Iterator[bytes], nodes: str, path: str, arguments: str) -> Delivered:
        service = self.service
        return deliver(
            pieces,
            nodes,
            target=service.target,
            path=path,
            arguments=arguments,
            timeouts=service.timeouts,
            peers=service.peers,
        )

    def _put_directly(self, pieces: Iterator[bytes], nodes: str, path: str, arguments: str) -> None:
        done = self._delivered(pieces, nodes, path, arguments)
        if done.content is not None:
            with closing(done.content) as content:
                self._send(content)
            return
        self._begun = True
        self.send_response(done.status)
        self.send_header(LENGTH, str(done.length))
        self.end_headers()

    def _send(self, pieces: Iterable[bytes]) -> None:
        self._begun = True
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

    def _refuse(self, error: Exception, body: Body) -> None:
        """Answer with status and text, after the rest of the body: a client that still sends hears nothing."""
        with suppress(ConnectionError, TimeoutError):
            for _ in body:
                pass
            self._begun = True
            self._say(_status_of(error), _text_of(error))

    def _say(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    # ws

    def _talk(self) -> None:
        """Messages in turns: a control message, the shard unless a file is named, and then the output."""
        self.close_connection = True
        key = self.headers.get("Sec-WebSocket-Key")
        if not key or self.headers.get("Upgrade", "").lower() != "websocket":
            self._say(400, "this is where a WebSocket begins")
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
                control = _control(socket.whole_message(_CONTROL))
                self.server.busy.add(threading.current_thread())
                try:
                    self._exchange(socket, control)
                finally:
                    self.server.busy.discard(threading.current_thread())
            socket.close(_LEAVING, "the service ends")
        except Exception as error:  # noqa: BLE001  # whatever it is, the target is told
            if isinstance(error, OSError) and not isinstance(error, Tar2TFError):
                return  # the other side has gone
            with suppress(OSError):
                socket.close(_FAILED, _text_of(error))  # a text would mean success

    def _exchange(self, socket: Socket, control: dict[str, Any]) -> None:
        file, path = str(control.get("fqn") or ""), str(control.get("path") or "")
        arguments, nodes = str(control.get("etl_args") or ""), str(control.get("pipeline") or "")
        blocks = file_blocks(file, self.service.roots) if file else socket.message()
        with self.service.turn():
            pieces = self._transformed(blocks, arguments, path)
            if not nodes:
                socket.send(pieces)
                return
            done = self._delivered(pieces, nodes, path, arguments)
            if done.content is not None:
                with closing(done.content) as content:
                    socket.send(content)
            else:
                socket.send(iter([_SUCCESS.encode()]), TEXT)


def _control(message: bytes) -> dict[str, Any]:
    try:
        found: Any = json_value(message)
    except SchemaError as error:
        raise ClosedError(f"a control message is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ClosedError("a control message is a JSON object")
    return cast("dict[str, Any]", found)


def _said_shard(arguments: str) -> str:
    """The shard's URL, if the client said it by `etl_args`: a target names no bucket over ws."""
    try:
        said: Any = json_value(arguments) if arguments else None
    except SchemaError:
        return ""
    return str(said.get("shard") or "") if isinstance(said, dict) else ""


def _status_of(error: Exception) -> int:
    if isinstance(error, AccessDenied):
        return 403
    if isinstance(error, ShardNotFound):
        return 404
    if isinstance(error, StoreError):
        return 502
    return 422 if isinstance(error, Tar2TFError) else 500


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_SAID]


def _close(blocks: Iterator[bytes]) -> None:
    """A generator that was left holds a file or a connection."""
    closing = getattr(blocks, "close", None)
    if closing is not None:
        closing()
