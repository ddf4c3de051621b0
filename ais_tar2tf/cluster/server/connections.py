"""Limits on connections: their number, and how long each may wait. It must not know what requests mean."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiohttp import web

__all__ = ["BODY_SECONDS", "CONNECTIONS", "HEADER_SECONDS", "IDLE_SECONDS", "BoundedServer", "Connection"]

CONNECTIONS = 512
"""Open at once, for proxy and target each. A new connection replaces the one that has been idle longest; if none is
idle, the new one gets a 503."""

IDLE_SECONDS = 75.0
"""Between two requests, as in most web servers; then the connection is closed."""

HEADER_SECONDS = 30.0
"""From a request's first byte to the end of its headers."""

BODY_SECONDS = 60.0
"""Between two pieces of a request's body."""

_TICK = 1.0  # seconds between two checks of the connections
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connection(web.RequestHandler):
    """A connection that knows how long it has been waiting for a request.

    A handler calls `begin` when it has received a request, and `end` after the response.
    """

    __slots__ = ("_clock", "_serving", "_since", "_started")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(manager, loop=loop, **options)
        self._clock = loop.time
        self._serving = False
        self._started = False  # the first bytes of a request have arrived
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

    def cut_if_late(self) -> None:
        """Abort the connection when it has waited too long for a request."""
        if not self._serving and self._clock() - self._since > (HEADER_SECONDS if self._started else IDLE_SECONDS):
            self.cut()

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Refusal(asyncio.Protocol):
    """Answers 503 to a connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        wire.write(_BUSY)
        wire.close()


class BoundedServer(web.Server):
    """aiohttp's server with a limited number of connections. Run `watch` as a task, and cancel it at the end."""

    def __init__(self, handler: Any, *, most: int = CONNECTIONS, **options: Any) -> None:
        super().__init__(handler, **options)
        self._most = most
        self._options = options

    def __call__(self) -> Any:
        """Return the protocol for a new connection."""
        connections = cast("list[Connection]", self.connections)
        if len(connections) >= self._most:
            idle = [(each.idle_since, each) for each in connections if each.idle_since is not None]
            if not idle:
                return _Refusal()
            min(idle, key=lambda pair: pair[0])[1].cut()
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)

    async def watch(self) -> None:
        """Abort connections that wait too long, until this task is cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            for connection in cast("list[Connection]", self.connections):
                connection.cut_if_late()
