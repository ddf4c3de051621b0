"""Where redirects must not lead: addresses at which machines in clouds find credentials and their neighbours.

A URL's text is checked before a redirect is followed; the address itself is checked once connected, before a
request is sent, because any name can stand for any address.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import StoreError

if TYPE_CHECKING:
    import requests

__all__ = ["ReachError", "is_protected", "mount_checks", "refused"]

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


def mount_checks(session: requests.Session) -> None:
    """Let `session` connect to no protected address: for requests that a redirect led to.

    Each of its connections is checked once it is there, before a request is sent; one to a protected address is
    closed and raises `ReachError`.
    """
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            _check(self)

    class Tls(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            _check(self)

    # urllib3's documented way to connect otherwise; its stubs know only its own classes.
    plain: Any = type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": Plain})
    tls: Any = type("TlsPool", (HTTPSConnectionPool,), {"ConnectionCls": Tls})

    class Checked(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **options)
            self.poolmanager.pool_classes_by_scheme = {"http": plain, "https": tls}

    for scheme in ("http://", "https://"):
        session.mount(scheme, Checked())


def _check(connection: Any) -> None:
    if is_protected(str(connection.sock.getpeername()[0])):
        connection.close()
        raise ReachError


def refused(shown: str) -> StoreError:
    """Return the error for a redirect that is not followed."""
    return StoreError("a redirect to a link-local address, or to a cloud's metadata, is not followed", url=shown)
