"""Bounds on connections: how many there are, and how long each may wait; it must not know what is asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiohttp import web

__all__ = ["BODY_SECONDS", "CONNECTIONS", "HEADER_SECONDS", "IDLE_SECONDS", "BoundedServer", "Connection"]

CONNECTIONS = 512
"""Open at once, for each of proxy and target. One more takes the place of the one that was idle longest."""

IDLE_SECONDS = 75.0
"""Between two requests, as most web servers have it; then the connection is closed."""

HEADER_SECONDS = 30.0
"""From a request's first byte to the end of its headers."""

BODY_SECONDS = 60.0
"""Between two pieces of a request's body."""

_TICK = 1.0  # seconds between two looks at the connections
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connection(web.RequestHandler):
    """One connection, which knows since when it waits for a request.

    A handler calls `begin` when it has a request, and `end` when that is answered.
    """

    __slots__ = ("_clock", "_serving", "_since", "_started")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(manager, loop=loop, **options)
        self._clock = loop.time
        self._serving = False
        self._started = False  # a request's first bytes have come
        self._since = loop.time()

    @property
    def idle_since(self) -> float | None:
        """When the connection became idle; None while a request is received or answered."""
        return None if self._serving or self._started else self._since

    def begin(self) -> None:
        self._serving = True

    def end(self) -> None:
        self._serving = self._started = False
        self._since = self._clock()

    def data_received(self, data: bytes) -> None:
        if not self._serving and not self._started:
            self._started, self._since = True, self._clock()
        super().data_received(data)

    def end_if_late(self) -> None:
        """Cut the connection when it has waited too long for a request."""
        if not self._serving and self._clock() - self._since > (HEADER_SECONDS if self._started else IDLE_SECONDS):
            self.cut()

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Refusal(asyncio.Protocol):
    """Answers a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        wire.write(_BUSY)
        wire.close()


class BoundedServer(web.Server):
    """aiohttp's server with bounds on its connections. Call `watch` once, and cancel what it returns at the end."""

    def __init__(self, handler: Any, *, most: int = CONNECTIONS, **options: Any) -> None:
        super().__init__(handler, **options)
        self._most = most
        self._options = options

    def __call__(self) -> Any:
        """Return the protocol for a connection that has just come."""
        connections = cast("list[Connection]", self.connections)
        if len(connections) >= self._most:
            idle = [(each.idle_since, each) for each in connections if each.idle_since is not None]
            if not idle:
                return _Refusal()
            min(idle, key=lambda pair: pair[0])[1].cut()
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)

    async def watch(self) -> None:
        """Cut connections that wait too long, until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            for connection in cast("list[Connection]", self.connections):
                connection.end_if_late()
