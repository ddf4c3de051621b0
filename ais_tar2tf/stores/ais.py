"""ais:// — AIStore's native API: the proxy redirects to a target, and the redirect is itself the grant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Read
from ais_tar2tf.stores._answers import followed, identity_of, is_address
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of, range_header

__all__ = ["AisStore", "endpoint_url"]

_MOST_REDIRECTS = 3  # proxy → target is one; a proxy that is not the primary may add one
_THERE_ALREADY = frozenset({409})
_GONE_ALREADY = frozenset({404})


def endpoint_url(given: str | None) -> str:
    """The endpoint: what was given, else AIS_ENDPOINT; without a scheme it is http."""
    endpoint = given or os.environ.get("AIS_ENDPOINT", "")
    if not endpoint:
        raise StoreError(
            "no endpoint: give proxy_url= (or endpoint=), or set AIS_ENDPOINT to something like http://host:51080",
            url="ais://",
        )
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    if not is_address(endpoint):
        shown = endpoint.partition("://")[0] + "://" + endpoint.rpartition("@")[2].rpartition("://")[2]
        raise StoreError("this is no endpoint; one looks like http://host:51080, without a password", url=shown)
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
        self._token = (token or os.environ.get("AIS_AUTHN_TOKEN", "")).strip() or None
        if self._token and not (self._token.isascii() and self._token.isprintable()):
            raise StoreError("the token holds characters that no header carries", url=f"{provider}://{bucket}")
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
                body = body_of(answer, name, start, stop, self._secrets())
                return body if body is not None else self.open(name, interrupt=interrupt)
            answer.drain()
            # The query is the grant: it is replayed as it came, and the token stays here.
            url, headers = followed(url, location, shown), wanted
        raise StoreError("the redirects do not end", url=shown)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._object(name), shown=self.url(name))
        size = int(answer.headers.get("Content-Length", "0"))
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """One page at a time; the last page may be empty."""
        token = ""
        while True:
            found, following = self._page(prefix, token)
            yield from found
            if not following:
                return
            if following == token:
                raise StoreError("the listing does not go on: its continuation token repeats", url=self.url(prefix))
            token = following

    def put(self, name: str, data: bytes) -> None:
        """An empty PUT for the target's address, then the body there: a big body does not survive the proxy."""
        url, shown = self._object(name), self.url(name)
        answer = self._control.call("PUT", url, shown=shown, data=b"", follow=False)
        if answer.is_redirect:
            url = followed(url, answer.headers["Location"], shown)
        self._control.call("PUT", url, shown=shown, data=data)

    def delete(self, name: str) -> None:
        self._control.call("DELETE", self._object(name), shown=self.url(name), accept=_GONE_ALREADY)

    def create(self) -> None:
        self._control.call(
            "POST", self._bucket_url(), shown=self.url(""), json={"action": "create-bck"}, accept=_THERE_ALREADY
        )

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _page(self, prefix: str, token: str) -> tuple[list[ObjectInfo], str]:
        """The objects of one page, and the token of the next one."""
        value = {
            "prefix": prefix,
            "pagesize": str(self._read.limits.listing_page),
            "props": "name,size",
            "continuation_token": token,
        }
        shown = self.url(prefix)
        answer = self._control.call("GET", self._bucket_url(), shown=shown, json={"action": "list", "value": value})
        try:
            page: dict[str, Any] = answer.json()
            sizes = {entry["name"]: int(entry.get("size", 0)) for entry in page.get("entries") or ()}
            following = page.get("continuation_token") or ""
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError("the answer is no listing; is the endpoint an AIStore proxy?", url=shown) from error
        return [ObjectInfo(name, size, Identity(size=size)) for name, size in sizes.items()], following

    def _bucket_url(self) -> str:
        return f"{self._endpoint}/v1/buckets/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def _object(self, name: str) -> str:
        query = urlencode({"provider": self._provider})
        return f"{self._endpoint}/v1/objects/{quote(self._bucket)}/{quote(name)}?{query}"

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _secrets(self) -> tuple[str, ...]:
        return (self._token,) if self._token else ()
