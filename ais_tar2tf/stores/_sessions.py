"""Sessions of requests for the control plane: whose answers may not drip, and which may reach what."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ais_tar2tf.options import Timeouts
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores._pace import paced
from ais_tar2tf.stores._reach import check_peer

if TYPE_CHECKING:
    import requests

__all__ = ["new_session"]


def new_session(
    timeouts: Timeouts, *, anywhere: bool = True, clock: Callable[[], float] = time.monotonic
) -> requests.Session:
    """Return a session; unless it may reach `anywhere`, each connection is checked before a request is sent.

    A connection to a protected address raises `ReachError` then: for requests that a redirect led to.
    """
    import requests

    logging.getLogger("urllib3.connectionpool").addFilter(_without_grant)  # the same one is added once
    session = requests.Session()
    session.auth = _no_auth
    session.headers["Accept-Encoding"] = "identity"  # of what is packed on the way HEAD says another size and ETag
    _mount(session, paced(timeouts, clock), anywhere=anywhere)
    return session


def _mount(session: requests.Session, answers: Any, *, anywhere: bool) -> None:
    from requests.adapters import HTTPAdapter

    pools, behind_proxies = _pools(answers, anywhere=anywhere), _pools(answers, anywhere=True)

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **options)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
            manager: Any = super().proxy_manager_for(*args, **options)
            manager.pool_classes_by_scheme = behind_proxies  # whose peer is the proxy, which the user chose
            return manager

    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())


def _pools(answers: Any, *, anywhere: bool) -> dict[str, Any]:
    """Return urllib3's pools, by scheme, of connections whose answers are ours."""
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Plain(HTTPConnection):
        response_class: Any = staticmethod(answers)

        def connect(self) -> None:
            super().connect()
            if not anywhere:
                check_peer(self)

    class Tls(HTTPSConnection):
        response_class: Any = staticmethod(answers)

        def connect(self) -> None:
            super().connect()
            if not anywhere:
                check_peer(self)

    # urllib3's documented way to connect otherwise; its stubs know only its own classes.
    plain: Any = type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": Plain})
    tls: Any = type("TlsPool", (HTTPSConnectionPool,), {"ConnectionCls": Tls})
    return {"http": plain, "https": tls}


def _without_grant(record: logging.LogRecord) -> bool:
    """Hide what lets its bearer in from the paths that urllib3 logs at level DEBUG: signatures, grants of AIStore."""
    if isinstance(record.args, tuple):
        record.args = tuple(_shown_path(each) if isinstance(each, str) else each for each in record.args)
    return True


def _shown_path(path: str) -> str:
    return f"{path.partition('?')[0]}?…" if path.startswith("/v1/") and "?" in path else shown_url(path)


def _no_auth(request: Any) -> Any:
    """Without this, requests would look for passwords in ~/.netrc."""
    return request
