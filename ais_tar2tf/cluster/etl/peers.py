"""Decides which nodes may send requests to a transformer and receive its output: only nodes of its own cluster.

A transformer is the service of an ETL. It runs next to each target, which is a node of AIStore that stores objects. A
request names the nodes that receive the output, and anybody who can reach the transformer's port can send a request.
Therefore, only known nodes are allowed: the target that the environment variable AIS_TARGET_URL names, the targets in
that target's cluster map, and the nodes that were named when the transformer was started.

This module must not send or receive shards. Its only request is for the cluster map.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from ais_tar2tf.base import forking
from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import MIB, Timeouts
from ais_tar2tf.stores.one_shot import open_blocks

__all__ = ["Peers"]

_MAP_BYTES = 16 * MIB  # the largest cluster map: a node takes some 600 bytes, so thousands of nodes have room
_MAP_SECONDS = 10.0  # the age at which the cluster map is fetched again, because nodes may have joined
_NETS = ("public_net", "intra_control_net", "intra_data_net")


class Peers:
    """Decides which nodes may receive output, and which addresses may send requests.

    Args:
        target: The URL of the target that this transformer works for. If empty, only `nodes` are known.
        nodes: Other allowed nodes, as `host:port`, such as the next transformers in a pipeline.
        timeouts: The timeouts of the request for the cluster map.
        clock: Returns the time in seconds; tests pass a clock that they control.
    """

    def __init__(
        self, target: str, nodes: Iterable[str], timeouts: Timeouts, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target = urlsplit(target)
        self._timeouts = timeouts
        self._clock = clock
        self._named_nodes = frozenset(_host_and_port(f"//{node}") for node in nodes)
        self._lock = forking.lock()
        self._map_fetched: float | None = None
        self._map: frozenset[tuple[str, int]] = frozenset()

    def allows_node(self, url: str) -> bool:
        """Return whether the transformer may send output to `url`."""
        node = _host_and_port(url)
        return bool(node[0]) and (node in self._configured_nodes() or node in self._nodes_in_map())

    def allows_client(self, address: str) -> bool:
        """Return whether an IP address may send requests: a loopback address, or an address of an allowed node."""
        client = _address(address)
        if client is None:
            return False
        if client.is_loopback or client in _addresses(self._configured_nodes()):
            return True
        return client in _addresses(self._nodes_in_map())

    def _configured_nodes(self) -> frozenset[tuple[str, int]]:
        own = _host_and_port(self._target.geturl())
        return self._named_nodes | {own} if own[0] else self._named_nodes

    def _nodes_in_map(self) -> frozenset[tuple[str, int]]:
        if not self._target.netloc:
            return frozenset()
        with self._lock:
            if self._map_fetched is None or self._clock() - self._map_fetched > _MAP_SECONDS:
                with contextlib.suppress(Tar2TFError):  # without an answer, the previous map stays valid
                    self._map = frozenset(_targets_in(self._fetch_map()))
                self._map_fetched = self._clock()
            return self._map

    def _fetch_map(self) -> dict[str, Any]:
        url = f"{self._target.scheme}://{self._target.netloc}/v1/daemon?what=smap"

        def fail(message: str) -> StoreError:
            return StoreError(message, url=url)

        data = bytearray()
        with open_blocks(url, self._timeouts, shown=url) as blocks:
            for block in blocks:
                data += block
                if len(data) > _MAP_BYTES:
                    raise fail(f"the cluster map has more than {_MAP_BYTES:,} bytes")
        return parse_json(bytes(data), where=url, fail=fail)


def _targets_in(document: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield host and port of every target in a cluster map, for each of its networks."""
    nodes = document.get("tmap")
    for node in nodes.values() if isinstance(nodes, dict) else ():
        for name in _NETS:
            net = node.get(name) if isinstance(node, dict) else None
            if isinstance(net, dict):
                yield _host_and_port(f"//{net.get('node_hostname')}:{net.get('daemon_port')}")
                yield _host_and_port(str(net.get("direct_url")))


def _host_and_port(url: str) -> tuple[str, int]:
    """Return host and port in a normal form; the host is empty when `url` has none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip(".").lower(), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "", 0


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Ip | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _addresses(nodes: Iterable[tuple[str, int]]) -> set[_Ip]:
    found: set[_Ip] = set()
    for host in {host for host, _ in nodes if host}:
        with contextlib.suppress(OSError, UnicodeError):  # the name cannot be resolved
            for *_, address in socket.getaddrinfo(host, None):
                ip = _address(str(address[0]))
                found |= {ip} if ip is not None else set()
    return found
