"""Requests that list, start and stop the ETLs of an AIStore cluster.

A failed request is not retried. Only a request whose token is refused is repeated, once, if there is a new token.

An ETL is a service that transforms objects inside the cluster. AIStore runs ETLs on Kubernetes only.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Retry, Timeouts, Tls
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.stores.clusters import ClusterCalls

__all__ = ["no_etls", "running", "start", "stop"]

_NOT_BUILT = frozenset({501})
_ONCE = Retry(attempts=1)


def no_etls(url: str) -> StoreError:
    """Return the error for a cluster that was built without ETLs."""
    return StoreError(
        "this cluster has no ETLs: AIStore needs to be built with -tags=etl and to run on Kubernetes", url=url
    )


def running(
    endpoint: str | None = None, *, token: TokenSource | None = None, tls: Tls | None = None
) -> list[str] | None:
    """Return the names of the running ETLs, or None when the cluster was built without ETLs.

    Args:
        endpoint: The proxy's URL; AIS_ENDPOINT when left out.
        token: The AuthN token, or a function that returns it; AIS_AUTHN_TOKEN when left out.
        tls: How the proxy's certificate is checked.
    """
    with ClusterCalls(endpoint, token, retry=_ONCE, tls=tls) as calls:
        answer = calls.call("GET", "etl", accept=_NOT_BUILT)
        if answer.status in _NOT_BUILT:
            return None
        try:
            etls: Any = json_value(answer.content) or []
            return [str(each["id"]) for each in etls if str(each.get("stage", "Running")) == "Running"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError("the answer is no list of ETLs; is this an AIStore proxy?", url=calls.shown) from error


def start(spec: dict[str, Any], endpoint: str | None = None, *, token: TokenSource | None = None) -> str:
    """Start an ETL, wait until it is ready, and return its name.

    Args:
        spec: The message that `Transformer.spec` returns.
        endpoint: The proxy's URL; AIS_ENDPOINT when left out.
        token: The AuthN token, or a function that returns it; AIS_AUTHN_TOKEN when left out.

    Raises:
        StoreError: The cluster was built without ETLs.
    """
    with ClusterCalls(endpoint, token, retry=_ONCE, timeouts=Timeouts(idle=360.0)) as calls:  # init_timeout is 5 min
        answer = calls.call("PUT", "etl", json=spec, accept=_NOT_BUILT)
        if answer.status in _NOT_BUILT:
            raise no_etls(calls.shown)
    return str(spec["name"])


def stop(name: str, endpoint: str | None = None, *, token: TokenSource | None = None) -> None:
    """Stop an ETL and remove it from the cluster.

    Args:
        name: The name of the ETL.
        endpoint: The URL of AIStore's proxy. Default: AIS_ENDPOINT.
        token: An AuthN token, or a function that returns one.

    Raises:
        StoreError: There is no such ETL, or the cluster refuses to stop it.
    """
    with ClusterCalls(endpoint, token, retry=_ONCE) as calls:
        calls.call("POST", f"etl/{name}/stop")
        calls.call("DELETE", f"etl/{name}")
