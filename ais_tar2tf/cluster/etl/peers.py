"""Who a transformer talks to: the targets of its own cluster, and nobody else.

A target names nodes that output is put to, and anybody who reaches the port could do so. Allowed are the target in
AIS_TARGET_URL, the targets in that one's cluster map, and nodes that were named when the service was started.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from ais_tar2tf import forking
from ais_tar2tf.documents import parse_json
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores.once import reading

__all__ = ["Peers"]

_MAP_BYTES = 16 * MIB  # of a cluster map: thousands of nodes at some 600 bytes each
_FRESH = 10.0  # seconds for which a map is believed: a node that joined is asked for again after that
_NETS = ("public_net", "intra_control_net", "intra_data_net")


class Peers:
    """The nodes that output may go to, and the addresses that may ask.

    Args:
        target: The URL of the target that this transformer works for, or an empty string.
        nodes: More nodes, as `host:port`: transformers that come later in a pipeline, for example.
        timeouts: For the request for the cluster map.
    """

    def __init__(
        self, target: str, nodes: Iterable[str], timeouts: Timeouts, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target = urlsplit(target)
        self._timeouts = timeouts
        self._clock = clock
        self._named = frozenset(_place(f"//{node}") for node in nodes)
        self._lock = forking.lock()
        self._asked: float | None = None
        self._map: frozenset[tuple[str, int]] = frozenset()

    def allows_node(self, url: str) -> bool:
        """Return whether output may be put to `url`."""
        place = _place(url)
        return bool(place[0]) and (place in self._known() or place in self._from_map())

    def allows_client(self, address: str) -> bool:
        """Return whether requests from this IP address are answered: from this machine, or from a known node."""
        asked = _address(address)
        if asked is None:
            return False
        if asked.is_loopback or asked in _addresses(self._known()):
            return True
        return asked in _addresses(self._from_map())

    def _known(self) -> frozenset[tuple[str, int]]:
        own = _place(self._target.geturl())
        return self._named | {own} if own[0] else self._named

    def _from_map(self) -> frozenset[tuple[str, int]]:
        if not self._target.netloc:
            return frozenset()
        with self._lock:
            if self._asked is None or self._clock() - self._asked > _FRESH:
                with contextlib.suppress(Tar2TFError):  # without a map, the nodes that are known are all
                    self._map = frozenset(_targets_of(self._ask()))
                self._asked = self._clock()
            return self._map

    def _ask(self) -> dict[str, Any]:
        url = f"{self._target.scheme}://{self._target.netloc}/v1/daemon?what=smap"

        def fail(message: str) -> StoreError:
            return StoreError(message, url=url)

        data = bytearray()
        with reading(url, self._timeouts, shown=url) as blocks:
            for block in blocks:
                data += block
                if len(data) > _MAP_BYTES:
                    raise fail(f"the cluster map has more than {_MAP_BYTES:,} bytes")
        return parse_json(bytes(data), where=url, fail=fail)


def _targets_of(document: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield where the targets of a cluster map listen."""
    nodes = document.get("tmap")
    for node in nodes.values() if isinstance(nodes, dict) else ():
        for name in _NETS:
            net = node.get(name) if isinstance(node, dict) else None
            if isinstance(net, dict):
                yield _place(f"//{net.get('node_hostname')}:{net.get('daemon_port')}")
                yield _place(str(net.get("direct_url")))


def _place(url: str) -> tuple[str, int]:
    """Return host and port, in one spelling; an empty host when `url` has none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip(".").lower(), parts.port or 80
    except ValueError:
        return "", 0


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Ip | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _addresses(places: Iterable[tuple[str, int]]) -> set[_Ip]:
    found: set[_Ip] = set()
    for host in {host for host, _ in places if host}:
        with contextlib.suppress(OSError, UnicodeError):  # a name that is not known has no address
            for *_, address in socket.getaddrinfo(host, None):
                ip = _address(str(address[0]))
                found |= {ip} if ip is not None else set()
    return found
