"""Starting and stopping the server: its sockets, its thread, its loop; it must not know what is served."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Self

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ais_tar2tf.errors import ServerError
from ais_tar2tf.server.calls import Seen
from ais_tar2tf.server.checksums import Checksums
from ais_tar2tf.server.connections import BoundedServer
from ais_tar2tf.server.folder import Folder
from ais_tar2tf.server.nodes import Address, Cluster, Node
from ais_tar2tf.server.proxy import Proxy
from ais_tar2tf.server.target import Target

__all__ = ["Server", "start"]

BACKLOG = 1_024  # connections that wait to be accepted: a loader's workers may all dial at once
WORKERS = 8  # threads for hashing, listing and writing: they wait for the disk more than they compute
SEEN = 10_000  # requests remembered for tests
LINE_BYTES = 64 * 1024  # of a request line: a name of 4 KiB is 12 KiB when percent-encoded
BUFFER_BYTES = 256 * 1024  # of a body, received and not yet written: for all connections together 256 MiB at most
HEADERS = 128  # fields of a request
FIELD_BYTES = 16 * 1024  # of one field: tokens take a few kilobytes
LINGERING = 1.0  # seconds for the rest of a body that was refused: a client that still sends then reads the answer
GRACE = 0.1  # seconds that requests under way have when the server closes

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # compared with, not bound to


def start(
    directory: str | os.PathLike[str],
    host: str,
    port: int,
    token: str | None,
    transformers: Mapping[str, str],
    hosts: Iterable[str],
) -> Server:
    """Start a server; `ais_tar2tf.server.serve` says what the arguments mean."""
    folder = Folder(directory)
    proxy_socket = _listen(host, port)
    try:
        target_socket = _listen(host, 0)
    except OSError:
        proxy_socket.close()
        raise
    names = frozenset(each.rstrip(".").lower() for each in (host, socket.gethostname(), *hosts) if each)
    return Server(folder, proxy_socket, target_socket, token=token, transformers=dict(transformers), names=names)


class Server:
    """A running server. `requests` are the last 10,000 that came; take `list(server.requests)` while it runs."""

    def __init__(
        self,
        folder: Folder,
        proxy_socket: socket.socket,
        target_socket: socket.socket,
        *,
        token: str | None,
        transformers: Mapping[str, str],
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._proxy = _address(proxy_socket, "p")
        self._target = _address(target_socket, "t")
        self.url: str = self._proxy.url
        self.target_url: str = self._target.url
        self.requests: deque[Seen] = deque(maxlen=SEEN)
        self._folder = folder
        self._token = token
        self._transformers = transformers
        self._names = names
        self._sockets = proxy_socket, target_socket
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="ais-server", daemon=True)
        self._thread.start()
        self._loop, self._stop = self._started.result()

    def close(self) -> None:
        """Stop, and wait until no thread, socket or task is left. May be called again."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        # Not the policy's loop: whoever embeds the server may have installed one without sendfile.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._main())
        finally:
            if not self._started.done():
                self._started.set_exception(RuntimeError("the server's thread ended before it was ready"))

    async def _main(self) -> None:
        stop = asyncio.Event()
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="ais-server") as pool:
            sums = Checksums(pool)
            cluster = Cluster(
                self._folder,
                sums,
                pool,
                self._proxy,
                self._target,
                token=self._token,
                seen=self.requests,
                transformers=self._transformers,
                names=self._names,
            )
            nodes = zip((Proxy(cluster), Target(cluster)), self._sockets, strict=True)
            servers = [(_bounded(node), sock) for node, sock in nodes]
            runners = [await _start(server, sock) for server, sock in servers]
            watches = [asyncio.ensure_future(server.watch()) for server, _ in servers]
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            sums.stop()
            for watch in watches:
                watch.cancel()
            await _shut(runners)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or "0.0.0.0",  # noqa: S104  # an empty host is how callers ask for all interfaces
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        what = error.strerror or error
        raise ServerError(f"{host}:{port}: the server cannot listen there: {what}") from error


def _address(sock: socket.socket, role: str) -> Address:
    address = sock.getsockname()
    host, port = str(address[0]), int(address[1])
    return Address(role + secrets.token_hex(8), _WILDCARDS.get(host, host), port)


def _log() -> logging.Logger:
    """Return a log for faults of this server; a request that cannot be parsed is its client's fault."""
    log = logging.getLogger("ais_tar2tf.server")
    if not log.filters:
        log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return log


def _bounded(node: Node) -> BoundedServer:
    return BoundedServer(
        node,
        access_log=None,
        logger=_log(),
        auto_decompress=False,  # an object that is put gzipped is stored as it comes
        lingering_time=LINGERING,
        max_line_size=LINE_BYTES,
        max_headers=HEADERS,
        max_field_size=FIELD_BYTES,
        read_bufsize=BUFFER_BYTES,
    )


async def _start(server: BoundedServer, sock: socket.socket) -> web.ServerRunner:
    runner = web.ServerRunner(server, shutdown_timeout=GRACE)
    await runner.setup()
    await web.SockSite(runner, sock, backlog=BACKLOG).start()
    return runner


async def _shut(runners: Iterable[web.ServerRunner]) -> None:
    """Stop listening, give requests their grace, then cut what is left: who does not read is not waited for."""
    servers = [runner.server for runner in runners]
    transports = [connection.transport for server in servers if server for connection in server.connections]
    await asyncio.gather(*(runner.cleanup() for runner in runners))
    for transport in transports:
        if transport is not None:
            transport.abort()
    others = asyncio.all_tasks() - {asyncio.current_task()}  # requests whose clients left, still at work
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # transports close their sockets in the loop's next turn
