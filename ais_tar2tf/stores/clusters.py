"""Calls to an AIStore cluster that concern no bucket: its jobs and ETLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ais_tar2tf.options import Retry, Timeouts, Tls
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._tls import ais_tls, warn_if_unverified
from ais_tar2tf.stores._token import Token, TokenSource
from ais_tar2tf.stores.ais import endpoint_url

if TYPE_CHECKING:
    import requests

__all__ = ["ClusterCalls"]


class ClusterCalls:
    """One session with the proxy; errors name the endpoint."""

    def __init__(
        self,
        endpoint: str | None = None,
        token: TokenSource | None = None,
        *,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.shown: str = endpoint_url(endpoint)
        chosen = ais_tls(tls or Tls())
        warn_if_unverified(chosen, self.shown)
        self._control = ControlPlane(
            self.shown, Token(token, self.shown), timeouts or Timeouts(), retry or Retry(), tls=chosen
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._control.close()

    def call(
        self, method: str, path: str, *, json: Any = None, accept: frozenset[int] = frozenset()
    ) -> requests.Response:
        """`path` below /v1/; the answer has a status of 2xx or one of `accept`."""
        return self._control.call(method, f"{self.shown}/v1/{path}", shown=self.shown, json=json, accept=accept)
