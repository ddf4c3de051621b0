"""The redirect rules of both HTTP clients: how many redirects are followed, and to which addresses.

At link-local and metadata addresses, machines in clouds find credentials and their neighbours. So a redirect must
not lead there from another address. The text of a Location is checked before the redirect is followed. Then the
address of the connection is checked before the request is sent, because any name may resolve to any address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from ais_tar2tf.errors import StoreError
from ais_tar2tf.stores.transport.answers import SENDABLE, is_address

__all__ = [
    "REDIRECTS",
    "Hop",
    "ReachError",
    "check_peer",
    "follow_redirects",
    "is_protected",
    "redirect_target",
    "refused",
]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses of answers whose Location is followed."""

_MAX_REDIRECTS = 5  # AIStore's proxy sends one, a proxy that is not the primary may add one; web servers send more
_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # Amazon
        "fd20:ce::254",  # Google
    )
)  # in addition to the link-local 169.254.0.0/16 and fe80::/10, where the metadata service of every cloud answers
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Hop:
    """One of the requests that lead to the final answer."""

    url: str
    origin: tuple[str, str]  # scheme and host:port of the first request, the only place that gets the token
    led_by: str | None = None  # the URL whose answer redirected here; None for the first request

    def secret_headers(self, authorization: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers that hold the token if this request goes to the origin, and no headers otherwise."""
        return authorization if urlsplit(self.url)[:2] == self.origin else {}

    @property
    def is_confined(self) -> bool:
        """Whether this request must not reach a protected address. Only a protected host may redirect to one."""
        return self.led_by is not None and not is_protected(urlsplit(self.led_by).hostname or "")


def follow_redirects(url: str, shown: str, request: Callable[[Hop], tuple[_Answer, str | None]]) -> _Answer:
    """Send a request, follow its redirects, and return the last answer.

    Args:
        url: Where the first request goes.
        shown: The URL for errors: redirects may hold grants.
        request: Sends one request; returns its answer, and the Location to follow, or None.

    Raises:
        StoreError: There are too many redirects, or one leads to a forbidden address.
    """
    hop = Hop(url, urlsplit(url)[:2])
    for _ in range(_MAX_REDIRECTS + 1):
        answer, location = request(hop)
        if location is None:
            return answer
        hop = Hop(redirect_target(hop.url, location, shown), hop.origin, hop.url)
    raise StoreError("the redirects do not end", url=shown)


def redirect_target(url: str, location: str, shown: str) -> str:
    """Return the URL to which a Location leads from `url`, verbatim.

    Servers that do not encode a Location send UTF-8, which the HTTP libraries decode as Latin-1.

    Raises:
        StoreError: The redirect leads from TLS to plain HTTP, to a URL with a password, or to a protected address.
    """
    location = quote(location, safe=f"{SENDABLE}#", encoding="latin-1")
    try:
        parts = urlsplit(location)
        target = location if parts.scheme else urljoin(url, location)
        where = f"{parts.scheme}://{parts.hostname}"
    except ValueError:
        target, where = "", "something that is no URL"
    downgraded = url.startswith("https:") and not target.startswith("https:")
    if not is_address(target) or downgraded or _enters_protected(url, target):
        raise StoreError(f"a redirect to {where} is not followed", url=shown)
    return target


def _enters_protected(url: str, target: str) -> bool:
    return is_protected(urlsplit(target).hostname or "") and not is_protected(urlsplit(url).hostname or "")


def is_protected(host: str) -> bool:
    """Return whether `host` is a link-local or metadata address in any spelling; False for all names.

    >>> is_protected("169.254.169.254"), is_protected("0xa9fea9fe"), is_protected("fe80::1%eth0")
    (True, True, True)
    >>> is_protected("127.0.0.1"), is_protected("example.org")
    (False, False)
    """
    host = host.partition("%")[0].rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))
        except (OSError, UnicodeError):  # a name
            return False
    if isinstance(address, ipaddress.IPv6Address):
        address = _embedded_ipv4(address) or address
    return address.is_link_local or address in _METADATA


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address within an IPv6 address that is mapped, 6to4, Teredo, NAT64, or IPv4-compatible."""
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


class ReachError(Exception):
    """A redirect led to a protected address."""


def check_peer(connection: Any) -> None:
    """Close an http.client connection whose peer is a protected address, and raise ReachError."""
    if is_protected(str(connection.sock.getpeername()[0])):
        connection.close()
        raise ReachError


def refused(shown: str) -> StoreError:
    """Return the error for a redirect to a protected address."""
    return StoreError("a redirect to a link-local address, or to a cloud's metadata, is not followed", url=shown)
