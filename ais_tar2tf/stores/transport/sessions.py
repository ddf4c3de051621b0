"""Sessions of the library `requests` that obey our rules for slow answers, TLS, and protected addresses.

The modules `pace` (slow answers), `tls` and `redirects` (protected addresses) define these rules. This module must
not send requests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.options import Timeouts
from ais_tar2tf.stores.transport.pace import paced
from ais_tar2tf.stores.transport.redirects import check_peer
from ais_tar2tf.stores.transport.tls import LazyContext

if TYPE_CHECKING:
    import requests

__all__ = ["new_session"]


def new_session(
    timeouts: Timeouts, context: LazyContext, *, confined: bool = False, clock: Callable[[], float] = time.monotonic
) -> requests.Session:
    """Return a new session, which reads nothing from the environment.

    Args:
        timeouts: The limits for slow answers.
        context: The context of TLS connections.
        confined: Whether a connection to a protected address raises ReachError, before a request is sent.
        clock: Measures how long answers take.
    """
    import requests

    logging.getLogger("urllib3.connectionpool").addFilter(_without_grant)  # adding a filter again has no effect
    session = requests.Session()
    session.trust_env = False  # other modules of this package find proxies and CAs
    session.headers["Accept-Encoding"] = "identity"  # otherwise HEAD may state size and ETag of compressed bytes
    _mount(session, paced(timeouts, clock), context, confined=confined)
    return session


def _mount(session: requests.Session, answers: Any, context: LazyContext, *, confined: bool) -> None:
    from requests.adapters import HTTPAdapter

    direct = _pools(answers, context, confined=confined)
    proxied = _pools(answers, context, confined=False)  # the peer is the proxy, which the user chose: no check

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **options)
            self.poolmanager.pool_classes_by_scheme = direct

        def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
            manager: Any = super().proxy_manager_for(*args, **options)
            manager.pool_classes_by_scheme = proxied
            return manager

    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())


def _pools(answers: Any, context: LazyContext, *, confined: bool) -> dict[str, Any]:
    """Return a pool class of urllib3 for each scheme, for connections that obey our rules.

    Args:
        answers: Makes the response object of a connection. This object checks the pace of the answer.
        context: The context of TLS connections.
        confined: Whether each new connection checks that its peer is no protected address.
    """
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Plain(HTTPConnection):
        response_class: Any = staticmethod(answers)

        def connect(self) -> None:
            super().connect()
            if confined:
                check_peer(self)

    class Secure(HTTPSConnection):
        response_class: Any = staticmethod(answers)

        def connect(self) -> None:
            self.ssl_context = context.get(self.host)
            self.cert_reqs = self.ssl_context.verify_mode
            self.ca_certs = None  # the context has the CAs; those of `requests` are not used
            super().connect()
            if confined:
                check_peer(self)

    # urllib3 documents that ConnectionCls may be replaced, but its type stubs allow only urllib3's own classes.
    plain: Any = type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": Plain})
    tls: Any = type("TlsPool", (HTTPSConnectionPool,), {"ConnectionCls": Secure})
    return {"http": plain, "https": tls}


def _without_grant(record: logging.LogRecord) -> bool:
    """Hide secret queries in the paths that urllib3 logs at level DEBUG. Return True, so that the record is logged.

    A query is secret if it signs the URL, or if the path belongs to AIStore's API (`/v1/`): the query of a redirect
    by AIStore grants access.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(_shown_path(each) if isinstance(each, str) else each for each in record.args)
    return True


def _shown_path(path: str) -> str:
    return f"{path.partition('?')[0]}?…" if path.startswith("/v1/") and "?" in path else shown_url(path)
