"""The HTTP client of the control plane, which sends all requests except the requests for the bodies of shards.

Its requests are HEAD, listings, operations on buckets, and PUT. The client uses the library `requests`, and retries
failed requests. It must not read shards: the client in `pool.py` reads their bodies. Both clients obey the same
rules, and each rule has a module: `redirects.py`, `tls.py`, `routes.py` (proxies), `tokens.py`, `pace.py`,
`base/retries.py`.
"""

from __future__ import annotations

import contextlib
import http.client
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from ais_tar2tf.base import forking, periodic
from ais_tar2tf.base.monitoring.waits import repeat_and_report
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import KIB, MIB, Retry, Timeouts, Tls
from ais_tar2tf.stores.transport.answers import Headers, error_for
from ais_tar2tf.stores.transport.contact import CONTACTS
from ais_tar2tf.stores.transport.redirects import REDIRECTS, Hop, ReachError, follow_redirects, refused
from ais_tar2tf.stores.transport.routes import route_to
from ais_tar2tf.stores.transport.sessions import new_session
from ais_tar2tf.stores.transport.tls import LazyContext, warn_if_unverified
from ais_tar2tf.stores.transport.tokens import Token, authorized, secrets_of
from ais_tar2tf.stores.transport.unanswered import check_first_answer, no_answer, no_connection, note_failure

if TYPE_CHECKING:
    import requests

__all__ = ["ControlAnswer", "ControlPlane"]

_IDLE = 2.0  # seconds for which unused connections stay open
_MAX_BYTES = 64 * MIB  # the largest answer; AIStore's largest page of a listing, 10,000 names, takes a tenth of this
_PIECE = 64 * KIB


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """An answer of the control plane, with its whole body."""

    status: int
    headers: Headers
    content: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def redirect(self) -> str | None:
        """The Location of a redirect; None for every other answer."""
        return (self.headers.get("Location", "") or None) if self.status in REDIRECTS else None


@dataclass(frozen=True, slots=True)
class _ControlCall:
    """The arguments of `ControlPlane.call`, from which each try makes the same request."""

    method: str
    url: str
    shown: str
    headers: Mapping[str, str]
    json: Any
    data: bytes | Path | None
    accept: frozenset[int]
    follow: bool
    asks_first: bool
    max_bytes: int


class ControlPlane:
    """The client for small requests to one endpoint. The token goes to the endpoint's origin and nowhere else."""

    def __init__(
        self,
        endpoint: str,
        token: Token | None,
        timeouts: Timeouts,
        retry: Retry,
        *,
        tls: Tls = Tls(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        warn_if_unverified(tls, endpoint)
        self._token = token
        self._timeouts = timeouts
        self._retry = retry
        self._verifies = tls.verify
        self._context = LazyContext(tls)
        self._clock = clock
        self._sessions: dict[bool, requests.Session] = {}  # at most two: for `Hop.is_confined` True and False
        self._lock = forking.lock()
        self._calls = 0  # the number of calls in progress
        self._last_used = 0.0  # the time when the last call ended
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget the calls and sockets of the parent process, in a forked child."""
        self._calls = 0
        self._sessions = {}

    def call(
        self,
        method: str,
        url: str,
        *,
        shown: str,
        json: Any = None,
        data: bytes | Path | None = None,
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
        follow: bool = True,
        asks_first: bool = False,
        max_bytes: int = _MAX_BYTES,
    ) -> ControlAnswer:
        """Send a request, and send it again as `Retry` allows. Return the first answer that is not an error.

        Args:
            method: GET, HEAD, PUT, POST or DELETE.
            url: The URL of the request. It may contain a secret, such as the signature of a signed URL.
            shown: The URL for errors, without secrets.
            json: A value to send as JSON.
            data: Bytes, or a file, to send.
            headers: Headers of the request, besides the token.
            accept: Statuses that are no error, in addition to 2xx.
            follow: Whether to follow redirects. If False, a redirect is no error, and is returned as the answer.
            asks_first: Whether to send an empty body to `url` first, because a large body does not survive a
                redirect. If the answer is a redirect, `data` is sent to the URL of the redirect. Otherwise a second
                request sends `data` to `url`.
            max_bytes: The largest answer that is accepted.

        Raises:
            StoreError: The status of the answer is neither 2xx nor in `accept`, or no try got an answer.
        """
        call = _ControlCall(method, url, shown, headers or {}, json, data, accept, follow, asks_first, max_bytes)
        sends_much = isinstance(data, Path) or len(data or b"") > _PIECE
        with self._in_use():
            return repeat_and_report(lambda: self._try_once(call), self._retry, shown, silent=sends_much)

    @contextlib.contextmanager
    def _in_use(self) -> Generator[None]:
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._last_used = time.monotonic()
            periodic.register(self)

    def on_tick(self) -> bool:
        """Close connections that no call has used for a while; return whether connections may still be open."""
        with self._lock:
            if self._calls or time.monotonic() - self._last_used < _IDLE:
                return True
            self.close()
            return False

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _try_once(self, call: _ControlCall) -> ControlAnswer:
        began = CONTACTS.now()
        try:
            return authorized(self._token, lambda authorization: self._send(call, authorization))
        except TransportError as error:
            raise note_failure(error, call.url, began, self._timeouts) from error.__cause__

    def _send(self, call: _ControlCall, authorization: Mapping[str, str]) -> ControlAnswer:
        """Send the request of a call without retries, and follow redirects."""

        def request(hop: Hop) -> tuple[ControlAnswer, str | None]:
            token = hop.secret_headers(authorization)
            is_question = call.asks_first and hop.led_by is None
            answer = self._request(call, hop, token, b"" if is_question else call.data)
            if hop.led_by is None:
                check_first_answer(answer.status, hop.url, call.shown, self._timeouts)
            if is_question and answer.ok:
                answer = self._request(call, hop, token, call.data)
            return answer, answer.redirect if call.follow else None

        answer = follow_redirects(call.url, call.shown, request)
        if answer.ok or answer.status in call.accept or (not call.follow and answer.redirect):
            return answer
        raise error_for(answer.status, call.shown, answer.headers, answer.content, secrets_of(self._token))

    def _request(
        self, call: _ControlCall, hop: Hop, authorization: Mapping[str, str], data: bytes | Path | None
    ) -> ControlAnswer:
        """Send one request. Errors never show a text of `requests`, which may hold the URL with its secrets."""
        import requests

        shown, scheme = call.shown, urlsplit(hop.url).scheme
        if scheme == "https":
            self._context.get(shown)  # made here, because urllib3 would hide why a TLS context cannot be made
        proxy = route_to(*urlsplit(hop.url)[:2]).proxy
        session = self._session(confined=hop.is_confined)
        try:
            with self._without_warning(), _opened(data) as sent:
                headers = {**call.headers, **authorization}
                request = session.prepare_request(
                    requests.Request(call.method, hop.url, data=sent, json=call.json, headers=headers)
                )
                request.url = hop.url  # unchanged: requests would resolve `..`, so the URL would name another object
                answer = session.send(
                    request,
                    timeout=(self._timeouts.connect, self._timeouts.idle),
                    allow_redirects=False,
                    stream=True,
                    verify=self._verifies,
                    proxies={scheme: proxy} if proxy else {},
                )
        except ReachError:
            raise refused(shown) from None
        except requests.RequestException as error:
            failure = _failed(error, hop.url, shown)
            raise failure from failure.__cause__
        try:
            return ControlAnswer(answer.status_code, answer.headers, _content(answer, call.max_bytes, shown))
        except requests.RequestException as error:
            raise TransportError(
                f"the request failed while its answer came ({type(error).__name__})", url=shown
            ) from None

    def _session(self, *, confined: bool) -> requests.Session:
        if (session := self._sessions.get(confined)) is None:
            session = new_session(self._timeouts, self._context, confined=confined, clock=self._clock)
            self._sessions[confined] = session
        return session

    @contextlib.contextmanager
    def _without_warning(self) -> Generator[None]:
        """Silence urllib3, which warns of every unverified request. The user was warned when the store was opened."""
        if self._verifies:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unverified HTTPS request")
            yield


@contextlib.contextmanager
def _opened(data: bytes | Path | None) -> Generator[bytes | BinaryIO | None]:
    """Yield the body of a request for `requests`. A file is opened again for every try, and sent in pieces."""
    if not isinstance(data, Path):
        yield data
    elif data.stat().st_size == 0:  # requests would send an empty file in chunked encoding, which some stores refuse
        yield b""
    else:
        with data.open("rb") as file:
            yield file


def _content(answer: requests.Response, max_bytes: int, shown: str) -> bytes:
    """Return the body of an answer; raise StoreError over `max_bytes` bytes. `requests` itself has no such bound."""
    pieces: list[bytes] = []
    with answer:
        for piece in answer.iter_content(_PIECE):
            pieces.append(piece)
            max_bytes -= len(piece)
            if max_bytes < 0:
                raise StoreError("the answer is larger than any that was asked for", url=shown)
    return b"".join(pieces)


def _failed(error: requests.RequestException, url: str, shown: str) -> StoreError:
    """Return the error for a request that got no answer.

    The returned error names the failure of the connection, and has this failure as its cause. Errors of `requests`
    are never among the causes, because the texts of these errors hold the whole URL with its secrets.
    """
    from requests.exceptions import ReadTimeout, SSLError
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    endpoint, chain = urlsplit(url)[:2], list(_causes(error))
    root = chain[-1]
    if isinstance(error, SSLError) or any(isinstance(each, NewConnectionError) for each in chain):
        failure = no_connection(root, endpoint, shown)
    elif any(isinstance(each, ConnectTimeoutError) for each in chain):
        root = TimeoutError("no answer in time")
        failure = no_connection(root, endpoint, shown)
    elif isinstance(error, ReadTimeout):
        root = root if isinstance(root, TimeoutError) else TimeoutError("timed out")
        failure = no_answer(root, endpoint, shown)
    else:
        root = root if isinstance(root, OSError | http.client.HTTPException) else type(error)()
        failure = no_answer(root, endpoint, shown)
    failure.__cause__ = root
    return failure


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first: errors of `requests`, of urllib3, and of the connection."""
    found: BaseException | None = error
    while found is not None:
        yield found
        parts = (getattr(found, "reason", None), *found.args[::-1])
        inner = next((part for part in parts if isinstance(part, BaseException)), None)
        found = inner if inner is not None else found.__cause__
