"""Whom to ask for what is at an origin: directly, or by way of a proxy that the environment names. No connections."""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

__all__ = ["Route", "route_to"]


@dataclass(frozen=True, slots=True)
class Route:
    """The way to what is at an origin."""

    origin: tuple[str, str]  # scheme and host:port of the one that answers
    before_path: str = ""  # what stands before the path in the request line
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tunnel: str = ""  # host:port of the proxy that a TLS connection goes through
    tunnel_headers: Mapping[str, str] = field(default_factory=dict[str, str])


def route_to(scheme: str, netloc: str) -> Route:
    """Return the way to an origin, by http_proxy, https_proxy, all_proxy, and no_proxy, which exempts hosts."""
    origin, headers = (scheme, netloc), {"Host": netloc, "Accept-Encoding": "identity"}
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(netloc):
        return Route(origin, headers=headers)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    credentials, _, address = via.netloc.rpartition("@")
    basic = base64.b64encode(unquote(credentials).encode()).decode()
    password = {"Proxy-Authorization": f"Basic {basic}"} if credentials else {}
    if scheme == "https":
        return Route(origin, headers=headers, tunnel=address, tunnel_headers=password)
    return Route(("http", address), f"http://{netloc}", {**headers, **password})
