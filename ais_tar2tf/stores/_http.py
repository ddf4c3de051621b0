"""HTTP for bodies: a small pool of http.client connections, read straight into the caller's buffer.

Every status that is no success becomes one of our errors here, and nowhere else. Nothing is retried here.
"""

from __future__ import annotations

import http.client
import re
import select
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from ais_tar2tf import forking, lookout
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Timeouts, Tls
from ais_tar2tf.stores._answers import error_for, followed, identity_of, length_of
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores._contact import CONTACTS
from ais_tar2tf.stores._pace import PacedResponse, paced
from ais_tar2tf.stores._reach import is_protected, refused
from ais_tar2tf.stores._routes import Route, route_to
from ais_tar2tf.stores._tls import context_of
from ais_tar2tf.stores._unanswered import check_first_answer, no_answer, no_connection, note_failure

__all__ = ["Answer", "HttpBody", "HttpPool", "body_of", "info_of", "range_header"]

_IDLE_POOLED = 2.0  # seconds; to connect again costs less than what nobody uses any more costs the server
_MOST_POOLED = 16  # connections kept for reuse, over all hosts
_TICK = 1.0  # seconds between two looks at the idle time while bytes do not come
_ERROR_BODY = 4096  # bytes of an error's explanation that are read
_CONTENT_RANGE = re.compile(
    r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)"
)  # Python refuses numbers that are too long
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5  # AIStore's proxy makes one, a proxy that is not the primary may add one; web servers some


@dataclass(slots=True)
class _Kept:
    connection: http.client.HTTPConnection
    since: float


@dataclass(frozen=True, slots=True)
class _Asked:
    method: str
    headers: Mapping[str, str]
    body: bytes


class HttpPool:
    """Connections by origin, reused while young. Safe to use from several threads."""

    def __init__(
        self,
        timeouts: Timeouts,
        tls: Tls = Tls(),  # noqa: B008  # frozen
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self._tls = tls
        self._lock = forking.lock()
        self._kept: dict[tuple[str, str], list[_Kept]] = {}
        weakref.finalize(self, _close_kept, self._kept)  # a store that nobody closed leaves no socket either
        self._routes: dict[tuple[str, str], Route] = {}  # by origin: asking the environment takes 50 µs
        self._closed = False
        self._context: ssl.SSLContext | None = None
        forking.at_fork(self)

    def ask(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        shown: str,
        first: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes = b"",
        interrupt: Interrupt | None = None,
    ) -> Answer:
        """The answer behind all redirects, each of which is followed as it came. `first`: headers for nobody else."""
        led_by, asked = None, _Asked(method, {**headers, **(first or {})}, body)
        interrupt = interrupt or Interrupt()
        door, began = url, CONTACTS.now()
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                answer = self._answer(url, asked, shown, led_by, interrupt)
            except TransportError as error:
                if interrupt.fired:
                    raise
                raise note_failure(error, door, began, self._timeouts) from error.__cause__
            if led_by is None:
                self._check_first(answer, url, shown)
            location = answer.redirect
            if location is None:
                return answer
            answer.drain()
            url, led_by, asked = followed(url, location, shown), url, _Asked(method, headers, body)
        raise StoreError("the redirects do not end", url=shown)

    def _check_first(self, answer: Answer, url: str, shown: str) -> None:
        try:
            check_first_answer(answer.status, url, shown, self._timeouts)
        except TransportError:
            answer.finish(reusable=False)
            raise

    def _answer(self, url: str, asked: _Asked, shown: str, led_by: str | None, interrupt: Interrupt) -> Answer:
        """Of one request. A kept connection that turns out to be dead is replaced once.

        `led_by`: the URL whose redirect led here.
        """
        parts = urlsplit(url)
        route = self._routes.get((parts.scheme, parts.netloc))
        if route is None:
            route = self._routes[parts.scheme, parts.netloc] = route_to(parts.scheme, parts.netloc)
        target = f"{route.before_path}{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        asked = _Asked(asked.method, {**route.headers, **asked.headers}, asked.body)
        connection = self._take(route.origin)
        if connection is not None:
            try:
                return self._sent(connection, route, target, asked, shown, interrupt)
            except BaseException as error:
                connection.close()
                dead = isinstance(error, TransportError) and not isinstance(error.__cause__, TimeoutError)
                if not dead or interrupt.fired:
                    raise
        connection = self._connect(route, shown)
        try:
            _check_reach(connection.sock, led_by, shown)
            return self._sent(connection, route, target, asked, shown, interrupt)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            _close_kept(self._kept)

    def forked(self) -> None:
        """The parent goes on with these sockets, and answers to both would mix."""
        _close_kept(self._kept)

    def give_back(self, origin: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        with self._lock:
            count = sum(map(len, self._kept.values()))
            keeps = not self._closed and count < _MOST_POOLED
            if keeps:
                self._kept.setdefault(origin, []).append(_Kept(connection, time.monotonic()))
        if keeps:
            lookout.watch(self)
        else:
            connection.close()

    def look(self) -> bool:
        """Close connections that nobody has used for a while; return whether others are left."""
        oldest, old = time.monotonic() - _IDLE_POOLED, list[_Kept]()
        with self._lock:
            for origin, kept in list(self._kept.items()):
                old += [one for one in kept if one.since <= oldest]
                self._kept[origin] = [one for one in kept if one.since > oldest]
                if not self._kept[origin]:
                    del self._kept[origin]
            is_left = bool(self._kept)
        for one in old:
            one.connection.close()
        return is_left

    def _take(self, origin: tuple[str, str]) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                kept = self._kept.get(origin)
                if not kept:
                    return None
                one = kept.pop()
            if time.monotonic() - one.since < _IDLE_POOLED and _is_quiet(one.connection.sock):
                return one.connection
            one.connection.close()

    def _connect(self, route: Route, shown: str) -> http.client.HTTPConnection:
        scheme, netloc = route.origin
        timeout = self._timeouts.connect
        if scheme == "https":
            if self._context is None:
                self._context = context_of(self._tls, shown)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                route.tunnel or netloc, timeout=timeout, context=self._context
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
            raise no_connection(error, route.origin, shown) from error
        sock: socket.socket = connection.sock
        sock.settimeout(self._timeouts.idle)
        tick = min(_TICK, self._timeouts.idle)
        timeval = struct.pack("ll", int(tick), int(tick % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        return connection

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        route: Route,
        target: str,
        asked: _Asked,
        shown: str,
        interrupt: Interrupt,
    ) -> Answer:
        sock: socket.socket = connection.sock
        interrupt.watch(sock)
        try:
            connection.putrequest(asked.method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                connection.putheader(name, value)
            if asked.body:
                connection.putheader("Content-Length", str(len(asked.body)))
            connection.endheaders(asked.body or None)
            response = cast("PacedResponse", connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            interrupt.forget(sock)
            raise no_answer(error, route.origin, shown) from error
        return Answer(self, route.origin, connection, response, self._timeouts.idle, shown, interrupt, sock)


def _check_reach(sock: socket.socket, led_by: str | None, shown: str) -> None:
    """A redirect to a name must not end where one to an address would not be followed."""
    if led_by is None or not is_protected(str(sock.getpeername()[0])):
        return
    if not is_protected(urlsplit(led_by).hostname or ""):
        raise refused(shown)


def _is_quiet(sock: socket.socket) -> bool:
    """Nothing has come since the last answer: what follows that would be taken for the next one."""
    news = select.poll()
    news.register(sock, select.POLLIN)
    return not news.poll(0)


def _close_kept(kept: dict[tuple[str, str], list[_Kept]]) -> None:
    for connections in kept.values():
        for one in connections:
            one.connection.close()
    kept.clear()


@dataclass(slots=True)
class Answer:
    """Status and headers have come; the body has not."""

    pool: HttpPool
    origin: tuple[str, str]
    connection: http.client.HTTPConnection
    response: PacedResponse
    idle: float
    shown: str
    interrupt: Interrupt
    sock: socket.socket
    _done: bool = field(default=False)

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def redirect(self) -> str | None:
        """Its Location."""
        return self.response.getheader("Location") if self.status in _REDIRECTS else None

    def drain(self) -> bytes:
        """A short body, so that the connection can be used again; a long one is given up."""
        try:
            body = self.response.read(_ERROR_BODY)
            reusable = self.response.isclosed() and not self.response.will_close
        except (OSError, http.client.HTTPException):
            body, reusable = b"", False
        self.finish(reusable=reusable)
        return body

    def whole(self, most: int) -> bytes:
        """A body of at most so many bytes; one that breaks off is shorter than it should be."""
        try:
            body = self.response.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            self.finish(reusable=False)
            raise TransportError(f"the body broke off ({type(error).__name__}: {error})", url=self.shown) from error
        self.finish(reusable=self.response.isclosed() and not self.response.will_close)
        if len(body) > most:
            raise StoreError(f"more than {most:,} bytes came, and fewer were asked for", url=self.shown)
        return body

    def error(self, secrets: tuple[str, ...] = ()) -> StoreError:
        """The error that this answer is. Closes it."""
        body = self.drain()
        return error_for(self.status, self.shown, self.response.headers, body, secrets)

    def hand_over(self, interrupt: Interrupt) -> None:
        self.interrupt.forget(self.sock)
        self.interrupt = interrupt
        interrupt.watch(self.sock)

    def finish(self, *, reusable: bool) -> None:
        """Nothing more will be read; the connection is kept if the body was read to its end."""
        if self._done:
            return
        self._done = True
        self.interrupt.forget(self.sock)
        self.response.close()
        if reusable and self.connection.sock is not None and not self.interrupt.fired:
            self.connection.sock.settimeout(self.idle)
            self.pool.give_back(self.origin, self.connection)
        else:
            self.connection.close()


class HttpBody:
    """A body of known length over a plain socket goes from the kernel straight into the caller's buffer."""

    def __init__(
        self, answer: Answer, info: ObjectInfo, start: int, length: int | None, *, stop: int | None = None
    ) -> None:
        self.info = info
        self.start = start
        self.stop = stop if length is None else start + length
        self._answer = answer
        self._left: int | None = length  # None: chunked, or until the connection closes
        self._sock: socket.socket | None = None
        self._buffered = 0
        sock: Any = answer.connection.sock  # None where the connection will be closed behind this answer
        if isinstance(sock, socket.socket) and not isinstance(sock, ssl.SSLSocket) and self._left:
            # What came with the headers waits in the response's own buffer; the rest is still in the socket.
            try:
                self._buffered = min(len(answer.response.fp.peek()), self._left)
            except OSError as error:
                answer.finish(reusable=False)
                raise self._broken(error) from error
            self._sock = sock
            sock.settimeout(None)  # SO_RCVTIMEO rules: one system call then fills a whole buffer

    def readinto(self, buffer: memoryview) -> int:
        if self._left is not None:
            buffer = buffer[: self._left]
        if not buffer:
            return 0
        try:
            count = self._read_socket(buffer) if self._sock is not None else self._read_response(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if self._left is not None:
            self._left -= count
        return count

    def hand_over(self, interrupt: Interrupt | None) -> None:
        """From now on, another reader receives, and its Interrupt ends the waits."""
        self._answer.hand_over(interrupt or Interrupt())

    def close(self) -> None:
        finished = self._left == 0 if self._left is not None else self._answer.response.isclosed()
        self._answer.finish(reusable=finished and not self._answer.response.will_close)

    def _read_response(self, buffer: memoryview) -> int:
        """What one read of the socket brings: HTTPResponse.readinto would lose what came before a break."""
        response = self._answer.response
        if self._left is None:
            data = response.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count = response.fp.readinto1(buffer)
        if not count:
            raise ConnectionResetError(f"it ended {self._left:,} bytes early")
        return count

    def _read_socket(self, buffer: memoryview) -> int:
        """One system call; MSG_WAITALL keeps the wait in the kernel, without the interpreter's lock."""
        assert self._sock is not None
        if self._buffered:
            count = self._answer.response.fp.readinto1(buffer[: self._buffered])
            self._buffered -= count
            return count
        pace = self._answer.response.pace
        began = pace.clock()
        while True:
            try:
                count = self._sock.recv_into(buffer, 0, socket.MSG_WAITALL)
            except BlockingIOError:  # a tick without a byte
                if pace.clock() - began >= self._answer.idle:
                    raise TimeoutError(f"nothing came for {self._answer.idle:g} s") from None
                continue
            if not count:
                raise ConnectionResetError(f"it ended {self._left:,} bytes early")
            pace.note(count, pace.clock() - began)
            return count

    def _broken(self, error: Exception) -> TransportError:
        return TransportError(f"the body broke off ({type(error).__name__}: {error})", url=self._answer.shown)


def range_header(start: int, stop: int | None) -> dict[str, str]:
    if start == 0 and stop is None:
        return {}
    return {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def info_of(answer: Answer, name: str, secrets: tuple[str, ...] = ()) -> ObjectInfo:
    """What the answer to a HEAD says."""
    if answer.status != 200:
        raise answer.error(secrets)
    answer.drain()
    headers = answer.response.headers
    size = length_of(headers)
    return ObjectInfo(name, size, identity_of(headers, size))


def body_of(
    answer: Answer, name: str, start: int, stop: int | None, secrets: tuple[str, ...] = ()
) -> HttpBody | None:
    """The body of a final answer; None when an empty object has no range to give, and is to be asked for whole."""
    headers = answer.response.headers
    if answer.status == 200:
        size = answer.response.length
        return HttpBody(answer, ObjectInfo(name, size, identity_of(headers, size)), 0, size)
    found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if answer.status == 206:
        length = answer.response.length
        if found is None or int(found[1]) != start or length not in (None, int(found[2]) + 1 - start):
            answer.finish(reusable=False)
            got = f"Content-Range {headers.get('Content-Range')!r}, Content-Length {length}"
            raise TransportError(f"asked for bytes from {start}, got {got}", url=answer.shown)
        size = None if found[3] == "*" else int(found[3])
        info = ObjectInfo(name, size, identity_of(headers, size))
        return HttpBody(answer, info, start, length, stop=int(found[2]) + 1)
    if answer.status == 416 and start == 0 and stop is not None:
        answer.drain()
        return None
    if answer.status == 416 and headers.get("Content-Range", "") == f"bytes */{start}":
        answer.drain()  # all of it came before: this is the end
        return HttpBody(answer, ObjectInfo(name, start, Identity(size=start)), start, 0)
    raise answer.error(secrets)
