"""http:// and https:// — any server that answers GET, with ranges if it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Read
from ais_tar2tf.stores._answers import as_sent, followed, identity_of, is_address
from ais_tar2tf.stores._base import Interrupt, ObjectInfo
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of, range_header
from ais_tar2tf.stores._tls import warn_if_unverified

__all__ = ["HttpStore"]

_MOST_REDIRECTS = 5


class HttpStore:
    """One origin, `http://host:port`; names are paths with their query, as they stand in URLs: `%20` is a space."""

    def __init__(self, origin: str, read: Read) -> None:
        if not is_address(origin):
            scheme, _, host = origin.partition("://")
            raise StoreError(
                "this is no host[:port]; names and passwords in URLs are not sent",
                url=f"{scheme}://{host.rpartition('@')[2]}",
            )
        self._origin = origin.rstrip("/")
        warn_if_unverified(read.tls, self._origin)
        self._pool = HttpPool(read.timeouts, read.tls)
        self._control = ControlPlane(self._origin, None, read.timeouts, read.retry, tls=read.tls)

    def __repr__(self) -> str:
        return f"HttpStore({self._origin})"

    def url(self, name: str) -> str:
        return f"{self._origin}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        url, led_by, shown = self._address(name), None, self.url(name)
        headers = range_header(start, stop)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._pool.get(url, headers, shown=shown, led_by=led_by, interrupt=interrupt)
            if answer.redirect is None:
                body = body_of(answer, name, start, stop)
                return body if body is not None else self.open(name, interrupt=interrupt)
            answer.drain()
            url, led_by = followed(url, answer.redirect, shown), url
        raise StoreError("the redirects do not end", url=shown)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._address(name), shown=self.url(name))
        length = answer.headers.get("Content-Length")
        size = int(length) if length is not None else None
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StoreError(
            "plain HTTP has no listing; name the shards, as in train-{000..146}.tar", url=self.url(prefix)
        )

    def put(self, name: str, data: bytes | Path) -> None:
        del data
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def move(self, name: str, to: str) -> bool:
        del to
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def delete(self, name: str) -> None:
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def create(self) -> None:
        raise StoreError("plain HTTP has no buckets", url=self._origin)

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _address(self, name: str) -> str:
        return f"{self._origin}/{as_sent(name)}"
