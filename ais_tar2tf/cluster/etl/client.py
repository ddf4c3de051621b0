"""ETLs of a cluster: which run, starting one, stopping it. AIStore runs them on Kubernetes only."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Retry, Timeouts, Tls
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.stores.clusters import ClusterCalls
from ais_tar2tf.values import json_value

__all__ = ["running", "start", "stop"]

_NOT_BUILT = frozenset({501})
_ONCE = Retry(attempts=1)


def running(
    endpoint: str | None = None, *, token: TokenSource | None = None, tls: Tls | None = None
) -> list[str] | None:
    """The names of the ETLs that run; None where the cluster has no ETLs at all."""
    with ClusterCalls(endpoint, token, retry=_ONCE, tls=tls) as calls:
        answer = calls.call("GET", "etl", accept=_NOT_BUILT)
        if answer.status_code in _NOT_BUILT:
            return None
        try:
            said: Any = json_value(answer.content) or []
            return [str(each["id"]) for each in said if str(each.get("stage", "Running")) == "Running"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError("the answer is no list of ETLs; is this an AIStore proxy?", url=calls.shown) from error


def start(spec: dict[str, Any], endpoint: str | None = None, *, token: TokenSource | None = None) -> str:
    """Start what `Transformer.spec` describes, and wait until it is ready; gives the name."""
    with ClusterCalls(endpoint, token, retry=_ONCE, timeouts=Timeouts(idle=360.0)) as calls:  # init_timeout, and some
        answer = calls.call("PUT", "etl", json=spec, accept=_NOT_BUILT)
        if answer.status_code in _NOT_BUILT:
            raise StoreError(
                "this cluster has no ETLs: AIStore needs to be built with -tags=etl and to run on Kubernetes",
                url=calls.shown,
            )
    return str(spec["name"])


def stop(name: str, endpoint: str | None = None, *, token: TokenSource | None = None) -> None:
    """Stop it, and forget it."""
    with ClusterCalls(endpoint, token, retry=_ONCE) as calls:
        calls.call("POST", f"etl/{name}/stop")
        calls.call("DELETE", f"etl/{name}")
