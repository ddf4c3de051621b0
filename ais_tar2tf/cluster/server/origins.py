"""The check that a request does not come from a web page of another origin. This module must not do I/O.

A web page of somebody else can make a browser send requests to this server in two ways. Both are refused:

* The page's domain has a host name that resolves to this machine. The Host header of the request is then this name.
* The page uses the address of this server. The Origin header then names the page's origin. If the browser sends no
  Origin header, Sec-Fetch-Site says that the request comes from another origin.

A Host header with an IP address is always accepted, because the first way needs a host name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

__all__ = ["foreign"]


def foreign(headers: Mapping[str, str], names: Collection[str]) -> str:
    """Return why a request with these headers is refused, or an empty string if the request is accepted.

    Args:
        headers: The request's headers; lookups ignore case.
        names: The host names of this server, in lower case. `localhost` and IP addresses are accepted without them.
    """
    host = headers.get("Host", "")
    name = _name_of(f"//{host}")
    if host and not _is_own(name, names):
        return f"the host {name!r} is not this server's: use its address, or allow the name (serve(hosts=[…]))"
    origin = headers.get("Origin", "")
    if origin and (not host or _host_and_port(origin) != _host_and_port(f"http://{host}")):
        return "requests from web pages of other origins are refused"
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "requests from web pages of other origins are refused"
    return ""


def _is_own(name: str, names: Collection[str]) -> bool:
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return url


def _host_and_port(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        return _name_of(url), parts.port
    except ValueError:
        return url, None
