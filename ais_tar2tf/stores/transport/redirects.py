"""The redirect rules of both HTTP clients, `pool.py` and `control.py`: how many redirects are followed, and where to.

*Protected* addresses are link-local addresses, and the addresses of the metadata services of clouds. Behind them are
credentials, and machines that only their neighbours should reach. So a redirect must not lead from any other address
to a protected address. This is checked twice: in the Location before the redirect is followed, and in the address of
the connection before the request is sent. The second check is needed because any name may resolve to any address.

This module must not connect to a server: the HTTP clients do.
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
"""The statuses of the answers whose Location header is followed."""

# AIStore sends one redirect. A proxy that is not the primary may add another one. Web servers send more.
_MAX_REDIRECTS = 5
_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # Amazon
        "fd20:ce::254",  # Google
    )
)  # link-local addresses (169.254.0.0/16, fe80::/10), where most metadata services answer, need not be listed
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of the chain that redirects form: the first request, or a request to which a redirect led."""

    url: str
    origin: tuple[str, str]  # scheme and host:port of the first request; only this server gets the token
    led_by: str | None = None  # the URL whose answer redirected here; None for the first request

    def secret_headers(self, authorization: Mapping[str, str]) -> Mapping[str, str]:
        """Return `authorization`, the headers with the token, if this request goes to `origin`; else no headers."""
        return authorization if urlsplit(self.url)[:2] == self.origin else {}

    @property
    def is_confined(self) -> bool:
        """Whether an unprotected host redirected to this request, which then must not reach a protected address."""
        return self.led_by is not None and not is_protected(urlsplit(self.led_by).hostname or "")


def follow_redirects(url: str, shown: str, request: Callable[[Hop], tuple[_Answer, str | None]]) -> _Answer:
    """Send a request, follow its redirects, and return the last answer.

    Args:
        url: The URL of the first request.
        shown: The URL that errors name. The URL of a redirect may hold a signature, so errors do not show it.
        request: Sends one request. Returns its answer, and the Location to follow, or None if there is none.

    Raises:
        StoreError: There are too many redirects, or a redirect leads to a URL that `redirect_target` refuses.
    """
    hop = Hop(url, urlsplit(url)[:2])
    for _ in range(_MAX_REDIRECTS + 1):
        answer, location = request(hop)
        if location is None:
            return answer
        hop = Hop(redirect_target(hop.url, location, shown), hop.origin, hop.url)
    raise StoreError("the redirects do not end", url=shown)


def redirect_target(url: str, location: str, shown: str) -> str:
    """Return the URL to which a Location leads from `url`.

    Escapes in the Location, such as %20, stay as they are. Other characters are escaped if a URL must not hold them.
    They are encoded as Latin-1 for this: servers send them as UTF-8, and the HTTP libraries decode them as Latin-1.

    Raises:
        StoreError: The redirect leads from HTTPS to HTTP, from any other address to a protected address, or to a URL
            that is not HTTP or has a password.
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
    """Return whether `target` is at a protected address and `url` is not."""
    return is_protected(urlsplit(target).hostname or "") and not is_protected(urlsplit(url).hostname or "")


def is_protected(host: str) -> bool:
    """Return whether `host` is a protected address, in any spelling. The result for a name is False.

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
    """Return the IPv4 address in a mapped, 6to4, Teredo, NAT64 or IPv4-compatible IPv6 address; None for others."""
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


class ReachError(Exception):
    """A redirect led to a host name that resolves to a protected address."""


def check_peer(connection: Any) -> None:
    """Close an http.client connection and raise ReachError if the peer's address is protected."""
    if is_protected(str(connection.sock.getpeername()[0])):
        connection.close()
        raise ReachError


def refused(shown: str) -> StoreError:
    """Return the error for a redirect to a protected address."""
    return StoreError("a redirect to a link-local address, or to a cloud's metadata, is not followed", url=shown)
