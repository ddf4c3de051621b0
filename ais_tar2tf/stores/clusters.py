"""Calls to AIStore clusters about buckets, jobs and ETLs. This module must not read or write objects."""

from __future__ import annotations

from typing import Any, Self

from ais_tar2tf.base.documents.structure import check, fields, listed, text
from ais_tar2tf.options import Read, Retry, Timeouts, Tls
from ais_tar2tf.stores.ais_endpoint import endpoint_url
from ais_tar2tf.stores.ais_listing import not_aistore
from ais_tar2tf.stores.transport.answers import parsed_json
from ais_tar2tf.stores.transport.control import ControlAnswer, ControlPlane
from ais_tar2tf.stores.transport.tls import ais_tls
from ais_tar2tf.stores.transport.tokens import Token, TokenSource

__all__ = ["ClusterCalls", "bucket_names"]

_BUCKETS = listed(fields({"provider": text, "name": text}))


class ClusterCalls:
    """A client for the proxy of one AIStore cluster. Errors name the cluster by `shown`; default: its endpoint."""

    def __init__(
        self,
        endpoint: str | None = None,
        token: TokenSource | None = None,
        *,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        tls: Tls | None = None,
        shown: str = "",
    ) -> None:
        self._endpoint = endpoint_url(endpoint)
        self.shown: str = shown or self._endpoint
        tls = ais_tls(tls or Tls())
        self._control = ControlPlane(
            self._endpoint, Token(token, self.shown), timeouts or Timeouts(), retry or Retry(), tls=tls
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._control.close()

    def call(
        self, method: str, path: str, *, json: Any = None, accept: frozenset[int] = frozenset()
    ) -> ControlAnswer:
        """Send a request to `/v1/` + `path`, and return the answer.

        Raises:
            StoreError: The status of the answer is neither 2xx nor in `accept`, or there was no answer.
        """
        return self._control.call(method, f"{self._endpoint}/v1/{path}", shown=self.shown, json=json, accept=accept)


def bucket_names(endpoint: str | None, token: TokenSource | None = None, read: Read | None = None) -> list[str]:
    """Return the sorted URLs of all buckets that a cluster knows, including the buckets of cloud providers."""
    read = read or Read()
    with ClusterCalls(
        endpoint, token, retry=read.retry, timeouts=read.timeouts, tls=read.tls, shown="ais://"
    ) as calls:
        content = calls.call("GET", "buckets", json={"action": "list"}).content
        buckets = parsed_json(content, "list of buckets", calls.shown) or []  # null: no buckets
        fail = not_aistore(calls.shown, "the answer names no buckets")
        named = check(buckets, _BUCKETS, where=calls.shown, fail=fail)
        return sorted(f"{bucket['provider']}://{bucket['name']}" for bucket in named)
