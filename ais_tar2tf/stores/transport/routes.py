"""The route of an HTTP request: directly to the server that its URL names (the origin), or through a proxy.

Both HTTP clients of the package obey these rules: `pool.py`, which reads shards, and `control.py`, which sends all
other requests. This module must not do I/O.
"""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

__all__ = ["Route", "route_to"]


@dataclass(frozen=True, slots=True)
class Route:
    """The way to an origin: direct, or through a proxy. A field that is not needed has its default."""

    peer: tuple[str, str]  # scheme and host:port of the server that gets the request: the origin, or a proxy for http
    before_path: str = ""  # the scheme and host:port of the origin, which a proxy for http expects before the path
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tunnel: str = ""  # host:port of the proxy that passes on a TLS connection to the origin
    tunnel_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    proxy: str = ""  # the proxy's URL with its password; empty for a direct route


def route_to(scheme: str, netloc: str) -> Route:
    """Return the route to an origin.

    The variables http_proxy, https_proxy, all_proxy and no_proxy of the environment decide it.

    Args:
        scheme: The scheme of the origin, "http" or "https".
        netloc: The host of the origin, with its port if it has one.
    """
    origin, headers = (scheme, netloc), {"Host": netloc, "Accept-Encoding": "identity"}
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(netloc):
        return Route(origin, headers=headers)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    credentials, _, address = via.netloc.rpartition("@")
    basic = base64.b64encode(unquote(credentials).encode()).decode()
    password = {"Proxy-Authorization": f"Basic {basic}"} if credentials else {}
    url = f"http://{via.netloc}"
    if scheme == "https":
        return Route(origin, headers=headers, tunnel=address, tunnel_headers=password, proxy=url)
    return Route(("http", address), f"http://{netloc}", {**headers, **password}, proxy=url)
