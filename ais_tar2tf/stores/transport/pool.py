"""The HTTP client for bodies: a small pool of http.client connections.

Failures are not retried here. A request is sent again only if its pooled connection was dead, or if its token was
refused. Small requests go through `control.py`. Both clients obey the same rules for redirects, TLS, proxies and
tokens.
"""

from __future__ import annotations

import functools
import http.client
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from ais_tar2tf.base import forking, periodic
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Timeouts, Tls
from ais_tar2tf.stores.base import Interrupt
from ais_tar2tf.stores.transport.bodies import Answer
from ais_tar2tf.stores.transport.contact import CONTACTS
from ais_tar2tf.stores.transport.pace import PacedResponse, paced
from ais_tar2tf.stores.transport.redirects import Hop, ReachError, check_peer, follow_redirects, refused
from ais_tar2tf.stores.transport.routes import Route, route_to
from ais_tar2tf.stores.transport.tls import LazyContext
from ais_tar2tf.stores.transport.tokens import UNAUTHORIZED, Token, authorized, secrets_of
from ais_tar2tf.stores.transport.unanswered import check_first_answer, no_answer, no_connection, note_failure

__all__ = ["HttpPool"]

_UNUSED_SECONDS = 2.0  # an unused connection is then closed: keeping it costs the server more than a new one costs us
_MAX_POOLED = 16  # unused connections, to all hosts together
_TICK = 1.0  # seconds that one wait for bytes lasts; after each wait, Timeouts.idle is checked


@dataclass(slots=True, eq=False)
class _PooledConnection:
    """An unused connection."""

    peer: tuple[str, str]  # scheme and host:port
    connection: http.client.HTTPConnection
    since: float  # the time at which it was last used


@dataclass(frozen=True, slots=True)
class _PoolRequest:
    """One of the requests that lead through redirects to the final answer."""

    hop: Hop
    route: Route
    method: str
    headers: Mapping[str, str]
    body: bytes
    shown: str  # the URL for errors
    interrupt: Interrupt

    @property
    def target(self) -> str:
        """The path and the query for the request line; the whole URL for a proxy of plain HTTP."""
        parts = urlsplit(self.hop.url)
        return f"{self.route.before_path}{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"


class HttpPool:
    """A pool of connections. Unused connections can be reused for two seconds. Safe to use from several threads."""

    def __init__(
        self,
        timeouts: Timeouts,
        tls: Tls = Tls(),  # noqa: B008  # frozen
        token: Token | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self._context = LazyContext(tls)
        self._token = token
        self._lock = forking.lock()
        self._pooled: list[_PooledConnection] = []
        weakref.finalize(self, _close_all, self._pooled)  # closes the sockets of a store that was not closed
        self._routes: dict[tuple[str, str], Route] = {}  # cached, because reading the environment takes 50 µs
        self._closed = False
        forking.at_fork(self)

    def request(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        shown: str,
        method: str = "GET",
        body: bytes = b"",
        interrupt: Interrupt | None = None,
    ) -> Answer:
        """Send a request, follow its redirects, and return the last answer.

        Args:
            url: The URL of the request. It may contain a secret: a grant or a signature.
            headers: Headers that are sent with this request and with every redirected one.
            shown: The URL for errors, without secrets.
            method: GET or HEAD.
            body: The body of the request; AIStore takes one with a GET.
            interrupt: Ends the waits for the server when it fires.

        Raises:
            AccessDenied: The token was refused.
            StoreError: There was no answer, or a redirect must not be followed. An answer with an error status is
                returned, unless it refuses the token.
        """
        active_interrupt, began = interrupt or Interrupt(), CONTACTS.now()

        def attempt(authorization: Mapping[str, str]) -> Answer:
            answer = follow_redirects(url, shown, lambda hop: send_hop(hop, authorization))
            if answer.status == UNAUTHORIZED and self._token is not None:
                raise answer.error()
            return answer

        def send_hop(hop: Hop, authorization: Mapping[str, str]) -> tuple[Answer, str | None]:
            all_headers = {**headers, **hop.secret_headers(authorization)}
            answer = self._answer(hop, method, all_headers, body, shown, active_interrupt)
            if hop.led_by is None:
                self._check_first(answer, hop.url, shown)
            location = answer.redirect
            if location is not None:
                answer.drain()
            return answer, location

        try:
            return authorized(self._token, attempt)
        except TransportError as error:
            if active_interrupt.fired:
                raise
            raise note_failure(error, url, began, self._timeouts) from error.__cause__

    def _check_first(self, answer: Answer, url: str, shown: str) -> None:
        try:
            check_first_answer(answer.status, url, shown, self._timeouts)
        except TransportError:
            answer.finish(reusable=False)
            raise

    def _answer(
        self, hop: Hop, method: str, headers: Mapping[str, str], body: bytes, shown: str, interrupt: Interrupt
    ) -> Answer:
        """Send one request over a pooled connection. If there is none, or it is dead, use a new connection."""
        route = self._route(*urlsplit(hop.url)[:2])
        request = _PoolRequest(hop, route, method, {**route.headers, **headers}, body, shown, interrupt)
        connection = self._take(route.peer)
        if connection is not None:
            try:
                return self._send(connection, request)
            except TransportError as error:
                if isinstance(error.__cause__, TimeoutError) or interrupt.fired:
                    raise
        return self._send(self._connect(route, shown), request)

    def _route(self, scheme: str, netloc: str) -> Route:
        route = self._routes.get((scheme, netloc))
        if route is None:
            route = self._routes[scheme, netloc] = route_to(scheme, netloc)
        return route

    def close(self) -> None:
        with self._lock:
            self._closed = True
            _close_all(self._pooled)

    def forked(self) -> None:
        """Close the connections in a forked child: the parent and the child must not share a connection."""
        _close_all(self._pooled)

    def _give_back(self, peer: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        with self._lock:
            keeps = not self._closed and len(self._pooled) < _MAX_POOLED
            if keeps:
                self._pooled.append(_PooledConnection(peer, connection, time.monotonic()))
        if keeps:
            periodic.register(self)
        else:
            connection.close()

    def on_tick(self) -> bool:
        """Close connections that were not used for `_UNUSED_SECONDS`; return whether any connections are left."""
        limit = time.monotonic() - _UNUSED_SECONDS
        with self._lock:
            expired = [each for each in self._pooled if each.since <= limit]
            self._pooled[:] = [each for each in self._pooled if each.since > limit]
            any_left = bool(self._pooled)
        _close_all(expired)
        return any_left

    def _take(self, peer: tuple[str, str]) -> http.client.HTTPConnection | None:
        """Remove and return a live connection from the pool; None if there is none."""
        while True:
            with self._lock:
                latest = next((each for each in reversed(self._pooled) if each.peer == peer), None)
                if latest is None:
                    return None
                self._pooled.remove(latest)
            if time.monotonic() - latest.since < _UNUSED_SECONDS and _is_quiet(latest.connection.sock):
                return latest.connection
            latest.connection.close()

    def _connect(self, route: Route, shown: str) -> http.client.HTTPConnection:
        scheme, netloc = route.peer
        timeout = self._timeouts.connect
        if scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                route.tunnel or netloc, timeout=timeout, context=self._context.get(shown)
            )
            if route.tunnel:
                connection.set_tunnel(netloc, headers=route.tunnel_headers)
        else:
            connection = http.client.HTTPConnection(netloc, timeout=timeout)
        connection.response_class = paced(self._timeouts, self._clock)
        try:
            connection.connect()
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            connection.close()
            raise no_connection(error, route.peer, shown) from error
        sock: socket.socket = connection.sock
        sock.settimeout(self._timeouts.idle)
        # A body is read without Python's timeout (see `HttpBody`), so the kernel has to end each wait.
        tick = min(_TICK, self._timeouts.idle)
        timeval = struct.pack("ll", int(tick), int(tick % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        return connection

    def _send(self, connection: http.client.HTTPConnection, request: _PoolRequest) -> Answer:
        """Send one request over a connection. After any failure, the connection is closed."""
        try:
            if request.hop.is_confined and not request.route.proxy:
                check_peer(connection)
            return self._exchange(connection, request)
        except ReachError:
            raise refused(request.shown) from None
        except BaseException:
            connection.close()
            raise

    def _exchange(self, connection: http.client.HTTPConnection, request: _PoolRequest) -> Answer:
        sock: socket.socket = connection.sock
        request.interrupt.watch(sock)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            if request.body:
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            response = cast("PacedResponse", connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            request.interrupt.forget(sock)
            raise no_answer(error, request.route.peer, request.shown) from error
        give_back = functools.partial(self._give_back, request.route.peer)
        timeout, interrupt, secrets = self._timeouts.idle, request.interrupt, secrets_of(self._token)
        return Answer(connection, give_back, response, timeout, request.shown, interrupt, sock, secrets)


def _is_quiet(sock: socket.socket) -> bool:
    """Return whether a socket is open and has no unread bytes, which the next request would take for its answer."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


def _close_all(pooled: list[_PooledConnection]) -> None:
    for each in pooled:
        each.connection.close()
    pooled.clear()
