"""ais:// — AIStore's native API: the proxy redirects to a target, and the redirect is itself the grant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Read
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of, identity_of, range_header

__all__ = ["AisStore", "endpoint_url"]

_MOST_REDIRECTS = 3  # proxy → target is one; a proxy that is not the primary may add one
_THERE_ALREADY = frozenset({409})


def endpoint_url(given: str | None) -> str:
    """The endpoint: what was given, else AIS_ENDPOINT; without a scheme it is http."""
    endpoint = given or os.environ.get("AIS_ENDPOINT", "")
    if not endpoint:
        raise StoreError(
            "no endpoint: give proxy_url= (or endpoint=), or set AIS_ENDPOINT to something like http://host:51080",
            url="ais://",
        )
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StoreError("this is no endpoint; one looks like http://host:51080", url=endpoint)
    return endpoint.rstrip("/")


class AisStore:
    """One bucket of an AIStore cluster."""

    def __init__(
        self,
        bucket: str,
        read: Read,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        provider: str = "ais",
    ) -> None:
        if not bucket or "/" in bucket:
            raise StoreError("a bucket's name is not empty and has no slash", url=f"{provider}://{bucket}")
        self._bucket = bucket
        self._provider = provider
        self._endpoint = endpoint_url(endpoint)
        self._token = token or os.environ.get("AIS_AUTHN_TOKEN") or None
        self._read = read
        self._pool = HttpPool(read.timeouts)
        self._control = ControlPlane(self._endpoint, self._token, read.timeouts, read.retry)

    def __repr__(self) -> str:
        return f"AisStore({self._provider}://{self._bucket} at {self._endpoint})"

    def url(self, name: str) -> str:
        return f"{self._provider}://{self._bucket}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        shown = self.url(name)
        wanted = range_header(start, stop)
        url, headers = self._object(name), {**wanted, **self._authorization()}
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._pool.get(url, headers, shown=shown, interrupt=interrupt)
            location = answer.redirect
            if location is None:
                body = body_of(answer, name, start, self._secrets())
                return body if body is not None else self.open(name, interrupt=interrupt)
            answer.drain()
            # The query is the grant: it is replayed as it came, and the token stays here.
            url, headers = self._allowed(location, shown), wanted
        raise TransportError("the redirects do not end", url=shown)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._object(name), shown=self.url(name))
        size = int(answer.headers.get("Content-Length", "0"))
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """One page at a time; the last page may be empty."""
        token = ""
        while True:
            page = self._page(prefix, token)
            for entry in page.get("entries") or ():
                size = int(entry.get("size", 0))
                yield ObjectInfo(entry["name"], size, Identity(size=size))
            token = page.get("continuation_token") or ""
            if not token:
                return

    def put(self, name: str, data: bytes) -> None:
        """An empty PUT for the target's address, then the body there: a big body does not survive the proxy."""
        url, shown = self._object(name), self.url(name)
        answer = self._control.call("PUT", url, shown=shown, data=b"", follow=False)
        if answer.is_redirect:
            url = self._allowed(answer.headers["Location"], shown)
        self._control.call("PUT", url, shown=shown, data=data)

    def create(self) -> None:
        self._control.call(
            "POST", self._bucket_url(), shown=self.url(""), json={"action": "create-bck"}, accept=_THERE_ALREADY
        )

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _page(self, prefix: str, token: str) -> dict[str, Any]:
        value = {
            "prefix": prefix,
            "pagesize": str(self._read.limits.listing_page),
            "props": "name,size",
            "continuation_token": token,
        }
        answer = self._control.call(
            "GET", self._bucket_url(), shown=self.url(prefix), json={"action": "list", "value": value}
        )
        page: dict[str, Any] = answer.json()
        return page

    def _bucket_url(self) -> str:
        return f"{self._endpoint}/v1/buckets/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def _object(self, name: str) -> str:
        query = urlencode({"provider": self._provider})
        return f"{self._endpoint}/v1/objects/{quote(self._bucket)}/{quote(name)}?{query}"

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _secrets(self) -> tuple[str, ...]:
        return (self._token,) if self._token else ()

    def _allowed(self, location: str, shown: str) -> str:
        parts = urlsplit(location)
        downgraded = self._endpoint.startswith("https:") and parts.scheme != "https"
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or downgraded:
            raise StoreError(
                f"the endpoint redirects to {parts.scheme}://{parts.hostname}, which is not followed", url=shown
            )
        return location
