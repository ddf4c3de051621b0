"""Where redirects must not lead: addresses at which machines in clouds find credentials and their neighbours.

A URL's text is checked before a redirect is followed; the address itself is checked once connected, before a
request is sent, because any name can stand for any address.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from ais_tar2tf.errors import StoreError

__all__ = ["ReachError", "check_peer", "is_protected", "refused"]

_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # Amazon
        "fd20:ce::254",  # Google
    )
)  # beside 169.254.0.0/16 and fe80::/10, which is where all clouds answer
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_protected(host: str) -> bool:
    """Return whether `host` is a link-local or metadata address, in any spelling; a name is none.

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
        address = _within(address) or address
    return address.is_link_local or address in _METADATA


def _within(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for: mapped, 6to4, Teredo, NAT64, or IPv4-compatible."""
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


class ReachError(Exception):
    """A redirect led to a protected address."""


def check_peer(connection: Any) -> None:
    """Close a connection of http.client's kind that stands to a protected address, and raise `ReachError`."""
    if is_protected(str(connection.sock.getpeername()[0])):
        connection.close()
        raise ReachError


def refused(shown: str) -> StoreError:
    """Return the error for a redirect that is not followed."""
    return StoreError("a redirect to a link-local address, or to a cloud's metadata, is not followed", url=shown)
