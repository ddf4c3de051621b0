"""The control plane over requests: listing, HEAD, buckets, PUT. Small answers, retried here."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import random
import ssl
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from ais_tar2tf import forking, lookout
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import KIB, MIB, Retry, Timeouts, Tls
from ais_tar2tf.retries import Tries
from ais_tar2tf.stores._answers import error_for, followed
from ais_tar2tf.stores._contact import CONTACTS
from ais_tar2tf.stores._reach import ReachError, is_protected, refused
from ais_tar2tf.stores._sessions import new_session
from ais_tar2tf.stores._token import Token
from ais_tar2tf.stores._unanswered import check_first_answer, no_answer, no_connection, note_failure
from ais_tar2tf.waits import Wait

if TYPE_CHECKING:
    import requests

__all__ = ["ControlPlane"]

_LOG = logging.getLogger(__name__)  # of what is tried again; errors are raised, and never logged
_MOST_REDIRECTS = 3
_IDLE = 2.0  # seconds that connections are kept for the next call
_MOST_BYTES = 64 * MIB  # of an answer: AIStore's largest page, 10,000 names, has a tenth of that
_PIECE = 64 * KIB
_UNAUTHORIZED = 401
_OF_FILES = ("X509", "PEM")  # the parts of OpenSSL that read certificates and keys


class ControlPlane:
    """One session of requests to one endpoint. The token goes to the endpoint's origin and nowhere else."""

    def __init__(
        self,
        endpoint: str,
        token: Token | None,
        timeouts: Timeouts,
        retry: Retry,
        *,
        tls: Tls = Tls(),  # noqa: B008  # frozen
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = urlsplit(endpoint)[:2]
        self._token = token
        self._timeouts = timeouts
        self._retry = retry
        self._tls = tls
        self._pause = pause
        self._clock = clock
        self._session: requests.Session | None = None
        self._redirected: requests.Session | None = None  # for where redirects lead; its connections are checked
        self._process = os.getpid()
        self._lock = forking.lock()
        self._calls = 0  # under way
        self._used = 0.0  # when the last one ended
        forking.at_fork(self)

    def forked(self) -> None:
        """The calls are the parent's, and so are the sockets."""
        self._calls = 0

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
        most: int = _MOST_BYTES,
    ) -> requests.Response:
        """Return the answer, redirects followed by hand: with a status of 2xx or of `accept`.

        It is held whole, and is an error when it has more than `most` bytes. All other statuses are errors of ours.
        """
        sends_much = isinstance(data, Path) or len(data or b"") > _PIECE
        with self._in_use(), Wait(shown, silent=sends_much) as wait:
            return self._call(wait, method, url, shown, follow, headers, accept, most=most, json=json, data=data)

    @contextlib.contextmanager
    def _in_use(self) -> Generator[None]:
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._used = time.monotonic()
            lookout.watch(self)

    def look(self) -> bool:
        """Close connections when no call was made for a while; return whether some are left."""
        with self._lock:
            if self._calls or time.monotonic() - self._used < _IDLE:
                return True
            self.close()
            return False

    def _call(
        self,
        wait: Wait,
        method: str,
        url: str,
        shown: str,
        follow: bool,
        headers: Mapping[str, str] | None,
        accept: frozenset[int],
        **content: Any,
    ) -> requests.Response:
        tries, renewed = Tries(self._retry), False
        while True:
            token = self._token.value() if self._token else None
            began = CONTACTS.now()
            try:
                answer = self._send(method, url, shown, follow, token, headers, **content)
                if (
                    200 <= answer.status_code < 300
                    or answer.status_code in accept
                    or (not follow and answer.is_redirect)
                ):
                    return answer
                if answer.status_code == _UNAUTHORIZED and self._token and not renewed and self._token.renew(token):
                    renewed = True
                    continue
                secrets = self._token.secrets() if self._token else ()
                raise error_for(answer.status_code, shown, answer.headers, answer.content, secrets)
            except TransportError as failure:
                error = note_failure(failure, url, began, self._timeouts)
                delay = tries.after_failure(error, random.random)
                if delay is None:
                    raise tries.given_up(error) from error.__cause__
                wait.because(error)
                _LOG.info("%s Trying again, at most %d times.", error, self._retry.attempts)
                self._pause(delay)

    def close(self) -> None:
        for session in (self._session, self._redirected):
            if session is not None:
                session.close()

    def _send(
        self,
        method: str,
        url: str,
        shown: str,
        follow: bool,
        token: str | None,
        headers: Mapping[str, str] | None,
        **content: Any,
    ) -> requests.Response:
        if self._session is None or self._process != os.getpid():  # a forked child shares no socket
            self._session, self._redirected, self._process = (
                new_session(self._timeouts, clock=self._clock),
                None,
                os.getpid(),
            )
        session, first = self._session, True
        for _ in range(_MOST_REDIRECTS + 1):
            at_endpoint = urlsplit(url)[:2] == self._origin
            authorization = {"Authorization": f"Bearer {token}"} if token and at_endpoint else {}
            answer = self._ask(session, method, url, shown, headers={**(headers or {}), **authorization}, **content)
            if first:
                check_first_answer(answer.status_code, url, shown, self._timeouts)
                first = False
            if not (follow and answer.is_redirect):
                return answer
            before, url = url, followed(url, answer.headers["Location"], shown)
            if not is_protected(urlsplit(before).hostname or ""):  # who is one of them may lead to the others
                session = self._redirected = self._redirected or new_session(
                    self._timeouts, anywhere=False, clock=self._clock
                )
        raise StoreError("the redirects do not end", url=shown)

    def _ask(
        self,
        session: requests.Session,
        method: str,
        url: str,
        shown: str,
        *,
        most: int,
        data: bytes | Path | None,
        **content: Any,
    ) -> requests.Response:
        """One request. What requests says of failures would hold the whole URL, with its grant: its kind must do."""
        import requests

        timeouts = (self._timeouts.connect, self._timeouts.idle)
        # Said with each request, since REQUESTS_CA_BUNDLE overrides what a session says.
        verify = (os.fspath(self._tls.ca) if self._tls.ca else True) if self._tls.verify else False
        try:
            with self._quiet(), _opened(data) as sent:
                request = session.prepare_request(requests.Request(method, url, data=sent, **content))
                request.url = url  # as it was built: requests would fold `..`, and so name another object
                how = session.merge_environment_settings(url, {}, True, verify, self._certificate())
                answer = session.send(request, timeout=timeouts, allow_redirects=False, **how)
        except ReachError:
            raise refused(shown) from None
        except requests.RequestException as error:
            failure = _failed(error, url, shown)
            raise failure from failure.__cause__
        except OSError as error:  # requests looks for the files by itself
            raise StoreError(f"the TLS files do not serve: {error}", url=shown) from error
        try:
            return _held(answer, most, shown)
        except requests.RequestException as error:
            raise TransportError(
                f"the request failed while its answer came ({type(error).__name__})", url=shown
            ) from None

    def _certificate(self) -> str | tuple[str, str] | None:
        """As requests wants it."""
        certificate, key = (os.fspath(path or "") for path in (self._tls.certificate, self._tls.key))
        return (certificate, key) if certificate and key else certificate or None

    @contextlib.contextmanager
    def _quiet(self) -> Generator[None]:
        """Who gave up verification was warned once; urllib3 would warn with every request."""
        if self._tls.verify:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unverified HTTPS request")
            yield


@contextlib.contextmanager
def _opened(data: bytes | Path | None) -> Generator[bytes | BinaryIO | None]:
    """What requests sends: of a file piece by piece, from its start with each try."""
    if not isinstance(data, Path):
        yield data
    elif data.stat().st_size == 0:  # requests would send it in chunks, which not every store takes
        yield b""
    else:
        with data.open("rb") as file:
            yield file


def _held(answer: requests.Response, most: int, shown: str) -> requests.Response:
    """With all of its body, which requests alone would read without a bound."""
    pieces: list[bytes] = []
    with answer:
        for piece in answer.iter_content(_PIECE):
            pieces.append(piece)
            most -= len(piece)
            if most < 0:
                raise StoreError("the answer is larger than any that was asked for", url=shown)
    answer._content = b"".join(pieces)  # pyright: ignore[reportPrivateUsage]  # no public way in
    return answer


def _failed(error: requests.RequestException, url: str, shown: str) -> StoreError:
    """Return the error for a request that got no answer.

    The texts of requests' own errors hold the whole URL with its grant, so what is shown is the failure of the
    connection, which is the cause of the error that is returned.
    """
    from requests.exceptions import ReadTimeout, SSLError
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    endpoint, wraps = urlsplit(url)[:2], list(_wrapped(error))
    root = wraps[-1]
    failure: StoreError
    if isinstance(root, ssl.SSLError) and root.library in _OF_FILES:
        failure = StoreError(f"the TLS files do not serve ({root.reason})", url=shown)
    elif isinstance(error, SSLError) or any(isinstance(each, NewConnectionError) for each in wraps):
        failure = no_connection(root, endpoint, shown)
    elif any(isinstance(each, ConnectTimeoutError) for each in wraps):
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


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised for, one inside the other: requests' own, urllib3's, the connection's."""
    found: BaseException | None = error
    while found is not None:
        yield found
        parts = (getattr(found, "reason", None), *found.args[::-1])
        inner = next((part for part in parts if isinstance(part, BaseException)), None)
        found = inner if inner is not None else found.__cause__
