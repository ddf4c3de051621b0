"""The control plane over requests: listing, HEAD, buckets, PUT. Small answers, retried here."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Retry, Timeouts
from ais_tar2tf.stores._answers import error_for, followed

if TYPE_CHECKING:
    import requests

__all__ = ["ControlPlane"]

_MOST_REDIRECTS = 3


class ControlPlane:
    """One session of requests to one endpoint. The token goes to the endpoint's origin and nowhere else."""

    def __init__(
        self,
        endpoint: str,
        token: str | None,
        timeouts: Timeouts,
        retry: Retry,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._origin = urlsplit(endpoint)[:2]
        self._token = token
        self._timeouts = timeouts
        self._retry = retry
        self._pause = pause
        self._session: requests.Session | None = None
        self._process = os.getpid()

    def call(
        self,
        method: str,
        url: str,
        *,
        shown: str,
        json: Any = None,
        data: bytes | None = None,
        accept: frozenset[int] = frozenset(),
        follow: bool = True,
    ) -> requests.Response:
        """The answer, redirects followed by hand; statuses of `accept` beside 2xx. Our errors for all others."""
        tried = 0
        while True:
            try:
                answer = self._send(method, url, shown, json, data, follow)
                if answer.ok or answer.status_code in accept or (not follow and answer.is_redirect):
                    return answer
                secrets = (self._token,) if self._token else ()
                raise error_for(answer.status_code, shown, answer.headers, answer.content, secrets)
            except TransportError as error:
                tried += 1
                if tried >= self._retry.attempts:
                    raise
                self._pause(self._retry.delay(tried, random.random, asked=error.retry_after))

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _send(
        self, method: str, url: str, shown: str, json: Any, data: bytes | None, follow: bool
    ) -> requests.Response:
        import requests

        if self._session is None or self._process != os.getpid():  # a forked child shares no socket
            self._session, self._process = requests.Session(), os.getpid()
            self._session.auth = _no_auth
        timeouts = (self._timeouts.connect, self._timeouts.idle)
        for _ in range(_MOST_REDIRECTS + 1):
            at_endpoint = urlsplit(url)[:2] == self._origin
            headers = {"Authorization": f"Bearer {self._token}"} if self._token and at_endpoint else {}
            try:
                answer = self._session.request(
                    method, url, headers=headers, json=json, data=data, timeout=timeouts, allow_redirects=False
                )
            except requests.RequestException as error:
                # Its text would hold the whole URL, with its grant.
                kind = type(error).__name__
                raise TransportError(
                    f"the request failed ({kind}); is the endpoint right, and is it up?", url=shown
                ) from None
            if not (follow and answer.is_redirect):
                return answer
            url = followed(url, answer.headers["Location"], shown)
        raise StoreError("the redirects do not end", url=shown)


def _no_auth(request: Any) -> Any:
    """Without this, requests would look for passwords in ~/.netrc."""
    return request
