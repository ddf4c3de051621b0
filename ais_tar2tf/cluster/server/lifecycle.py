"""The life of the embedded server: its sockets, its thread and its event loop.

The server plays the two kinds of AIStore nodes: a proxy, which clients ask first, and a target, which holds the
objects. This module must not know what the nodes serve: `proxy.py` and `target.py` answer the requests.
"""

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

from ais_tar2tf.cluster.server.calls import ReceivedRequest
from ais_tar2tf.cluster.server.checksums import Checksums
from ais_tar2tf.cluster.server.connections import BoundedServer
from ais_tar2tf.cluster.server.folder import BucketRoot
from ais_tar2tf.cluster.server.nodes import Address, Cluster, Node
from ais_tar2tf.cluster.server.proxy import Proxy
from ais_tar2tf.cluster.server.target import Target
from ais_tar2tf.errors import ServerError

__all__ = ["Server"]

BACKLOG = 1_024  # the most connections that wait to be accepted: all workers of a loader may connect at once
WORKERS = 8  # threads for hashing, listing and writing, which mostly wait for the disk
MOST_REQUESTS = 10_000  # the last requests, which the server remembers for tests
LINE_BYTES = 64 * 1024  # the longest request line: a name of 4 KiB takes 12 KiB when it is percent-encoded
# The most bytes of a body that are received and not yet written. Two nodes with 512 connections each can so hold
# 256 MiB in all.
BUFFER_BYTES = 256 * 1024
HEADERS = 128  # the most header fields of a request
FIELD_BYTES = 16 * 1024  # the longest header field: tokens have a few kilobytes
LINGERING = 1.0  # seconds to receive the rest of a refused body: clients read the response after sending all of it
GRACE = 0.1  # seconds that requests in progress have when the server closes

# The keys are addresses that mean all interfaces. The values are addresses at which clients on this machine reach a
# server that listens there.
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # nothing is bound to it here


class Server:
    """A running server. `serve` checks and describes the arguments.

    Attributes:
        url: The proxy's URL, which is the endpoint for clients.
        target_url: The target's URL.
        requests: The last 10,000 requests, for tests. Copy it (`list(server.requests)`) before iterating.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        host: str,
        port: int,
        token: str | None,
        transformers: Mapping[str, str],
        hosts: Iterable[str],
    ) -> None:
        folder = BucketRoot(directory)
        proxy_socket = _listen(host, port)
        try:
            target_socket = _listen(host, 0)
        except OSError:
            proxy_socket.close()
            raise
        self.requests: deque[ReceivedRequest] = deque(maxlen=MOST_REQUESTS)
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="ais-server")  # ends with the server's thread
        self._cluster = Cluster(
            folder,
            Checksums(pool),
            pool,
            _address(proxy_socket, "p"),
            _address(target_socket, "t"),
            token=token,
            requests=self.requests,
            transformers=dict(transformers),
            names=frozenset(each.rstrip(".").lower() for each in (host, socket.gethostname(), *hosts) if each),
        )
        self.url: str = self._cluster.proxy.url
        self.target_url: str = self._cluster.target.url
        self._sockets = proxy_socket, target_socket
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="ais-server", daemon=True)
        self._thread.start()
        self._loop, self._stop = self._started.result()

    def close(self) -> None:
        """Stop the server, and wait until no thread, socket or task is left. Later calls do nothing."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        # This loop supports sendfile. The user's program may have installed an event loop policy whose loop does not.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._main())
        finally:
            if not self._started.done():
                self._started.set_exception(RuntimeError("the server's thread ended before it was ready"))

    async def _main(self) -> None:
        stop, cluster = asyncio.Event(), self._cluster
        with cluster.pool:
            nodes = zip((Proxy(cluster), Target(cluster)), self._sockets, strict=True)
            servers = [(_bounded(node), sock) for node, sock in nodes]
            runners = [await _start(server, sock) for server, sock in servers]
            watches = [asyncio.ensure_future(server.watch()) for server, _ in servers]
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            cluster.sums.stop()
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
    """Return the server's logger. It does not log requests that cannot be parsed, which are faults of the clients."""
    log = logging.getLogger("ais_tar2tf.cluster.server")
    if not log.filters:
        log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return log


def _bounded(node: Node) -> BoundedServer:
    return BoundedServer(
        node,
        access_log=None,
        logger=_log(),
        auto_decompress=False,  # the body of a gzipped PUT is stored unchanged
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
    """Stop listening, wait `GRACE` seconds for requests in progress, and abort the connections that remain."""
    servers = [runner.server for runner in runners]
    transports = [connection.transport for server in servers if server for connection in server.connections]
    await asyncio.gather(*(runner.cleanup() for runner in runners))
    for transport in transports:
        if transport is not None:
            transport.abort()
    others = asyncio.all_tasks() - {asyncio.current_task()}  # requests whose clients disconnected
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # transports close their sockets in the loop's next iteration
