"""http:// and https:// — any server that answers GET, with ranges if it can."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Read
from ais_tar2tf.stores._base import Interrupt, ObjectInfo
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of, identity_of, range_header

__all__ = ["HttpStore"]

_MOST_REDIRECTS = 5


class HttpStore:
    """One origin, `http://host:port`; names are paths with their query, used as they are written."""

    def __init__(self, origin: str, read: Read) -> None:
        self._origin = origin.rstrip("/")
        self._pool = HttpPool(read.timeouts)
        self._control = ControlPlane(self._origin, None, read.timeouts, read.retry)

    def __repr__(self) -> str:
        return f"HttpStore({self._origin})"

    def url(self, name: str) -> str:
        return f"{self._origin}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        url = shown = self.url(name)
        headers = range_header(start, stop)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._pool.get(url, headers, shown=shown, interrupt=interrupt)
            if answer.redirect is None:
                body = body_of(answer, name, start)
                return body if body is not None else self.open(name, interrupt=interrupt)
            answer.drain()
            url = _followed(url, answer.redirect, shown)
        raise TransportError("the redirects do not end", url=shown)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self.url(name), shown=self.url(name))
        length = answer.headers.get("Content-Length")
        size = int(length) if length is not None else None
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StoreError(
            "plain HTTP has no listing; name the shards, as in train-{000..146}.tar", url=self.url(prefix)
        )

    def put(self, name: str, data: bytes) -> None:
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def create(self) -> None:
        raise StoreError("plain HTTP has no buckets", url=self._origin)

    def close(self) -> None:
        self._pool.close()
        self._control.close()


def _followed(url: str, location: str, shown: str) -> str:
    target = urljoin(url, location)
    parts = urlsplit(target)
    downgraded = urlsplit(url).scheme == "https" and parts.scheme == "http"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or downgraded:
        raise StoreError(f"a redirect to {parts.scheme}://{parts.hostname} is not followed", url=shown)
    return target
