"""A running transformer: its HTTP server, its threads, and its shutdown.

This module must not interpret requests: `handler.py` answers them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ais_tar2tf.base import forking
from ais_tar2tf.cluster.etl.handler import Handler
from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.cluster.etl.transform import Transform
from ais_tar2tf.options import Timeouts

__all__ = ["MOST_CONNECTIONS", "STOP_SECONDS", "Service", "TransformerServer"]

MOST_CONNECTIONS = 512
"""The maximum number of open connections. Each has a thread, and a target opens a few for every job."""

STOP_SECONDS = 10.0
"""How long shards that are being transformed may take to finish when the service stops."""

_POLL = 0.05  # seconds between two checks for a request to stop
_BACKLOG = 512  # connections that wait to be accepted: a target opens several for every job
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Service:
    """A running transformer that answers a target's requests until `close()`.

    Attributes:
        url: The URL to which targets send shards. If the service has a secret, the secret is the URL's path, and
            requests without the secret are refused. Otherwise, only requests from this machine and from the cluster's
            targets are answered.
        ready: Whether the service accepts shards. `/health` reports this to the cluster, and needs no secret.
        workers: A semaphore with one place for each worker, which bounds the number of shards in memory.
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
        self.workers: threading.Semaphore = forking.semaphore(workers or os.cpu_count() or 1)
        self._server = TransformerServer((host, port), Handler, self)
        bound_host, bound_port = str(self._server.server_address[0]), self._server.server_address[1]
        listening = f"http://{'127.0.0.1' if bound_host == '0.0.0.0' else bound_host}:{bound_port}"  # noqa: S104
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

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.connections)

    def _prepare(self) -> None:
        """Import slow modules before the cluster sends the first shard."""
        self.transform.prepare()
        self.ready = not self.closing

    def close(self) -> None:
        """Refuse new shards, and wait until the current shards are finished, but at most `STOP_SECONDS`.

        Then close all connections. A thread that does not end within a second after this is left behind.
        """
        self.closing = True
        self.ready = False
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections(STOP_SECONDS)
        self._server.server_close()


class TransformerServer(ThreadingHTTPServer):
    """An HTTP server with a bounded number of connections and a thread for each of them.

    Attributes:
        service: The service that the handler answers for.
        connections: The sockets of open connections, by the threads that answer them.
        busy: The threads that are transforming a shard.
    """

    request_queue_size = _BACKLOG
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], service: Service) -> None:
        self.service: Service = service
        self.busy: set[threading.Thread] = set()
        self.connections: dict[threading.Thread, Any] = {}
        self._lock = forking.lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or with 503 when too many are open."""
        with self._lock:
            full = len(self.connections) >= MOST_CONNECTIONS
        if full:
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:  # before the start of the thread, so that `end_connections` finds it
            self.connections[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self.connections.pop(threading.current_thread(), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection: the other side logs it."""

    def end_connections(self, seconds: float) -> None:
        """Close idle connections now, and wait at most `seconds` until the busy ones end.

        Then close the remaining connections, and wait at most a second until their threads end.
        """
        for patience, also_busy in ((seconds, False), (1.0, True)):
            ends = time.monotonic() + patience
            with self._lock:
                connections = dict(self.connections)
            for thread, request in connections.items():
                if also_busy or thread not in self.busy:
                    with suppress(OSError):
                        request.shutdown(2)
            for thread in connections:
                thread.join(max(0.0, ends - time.monotonic()))
