"""Whether a request's Host and Origin are this server's own; it must not do I/O.

A page in a browser can send requests here: to a name of its own that it lets point to this machine (the Host is
then that name), or to this server's address (the Origin is then the page's). Neither is answered. An address in
numbers as Host is always taken: no page's name looks like one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

__all__ = ["foreign"]


def foreign(headers: Mapping[str, str], names: Collection[str]) -> str:
    """Return why a request with these headers is refused, or an empty string.

    Args:
        headers: The request's headers; lookups ignore case.
        names: The host names, in lower case, under which this server is known, beside `localhost` and addresses.
    """
    host = headers.get("Host", "")
    name = _name_of(f"//{host}")
    if host and not _is_own(name, names):
        return f"the host {name!r} is not this server's: use its address, or allow the name (serve(hosts=[…]))"
    origin = headers.get("Origin", "")
    if origin and (not host or _place_of(origin) != _place_of(f"http://{host}")):
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


def _place_of(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        return _name_of(url), parts.port
    except ValueError:
        return url, None
