"""The common part of proxy and target, the two nodes of the embedded server.

`Cluster` is the state that both nodes share. `Node` answers a request in steps: it records the request, checks where
the request comes from, parses it, authorizes it and answers it. This module must not read or write objects.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar, cast

import xxhash
from aiohttp import web

from ais_tar2tf.cluster.server import refusals
from ais_tar2tf.cluster.server.calls import (
    Call,
    ReceivedRequest,
    decoded_target,
    parse,
    peer_of,
    refuse,
    split_target,
)
from ais_tar2tf.cluster.server.checksums import Checksums
from ais_tar2tf.cluster.server.connections import Connection
from ais_tar2tf.cluster.server.folder import BucketRoot
from ais_tar2tf.cluster.server.grants import Grants
from ais_tar2tf.cluster.server.origins import foreign

__all__ = ["Address", "Cluster", "Node"]

# Resources of a real AIStore node. `Node.common` refuses each request for them that it cannot answer.
_NOT_EMBEDDED = frozenset(
    {
        "cluster", "daemon", "dload", "download", "jobs", "metasync", "ml", "notifs", "objects", "reverse", "s3",
        "tokens", "vote", "xaction", "buckets",
    }
)  # fmt: skip

_REMEMBERED_CHARS = 4096  # of each part of a request, such as its path, that `Cluster.requests` stores

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """The id of a node, and the host and port where it listens."""

    daemon_id: str
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state that proxy and target share.

    Attributes:
        folder: The folder that holds the buckets.
        sums: The checksums of files.
        pool: The threads for functions that block.
        proxy: The proxy's address.
        target: The target's address.
        token: The token that clients must send; None: clients need no token.
        requests: The latest requests, for tests.
        grants: Signs redirects from the proxy to the target, and checks their signatures.
        transformers: The URLs of transformers, by the names of their ETLs.
        names: The host names under which clients reach this server.
    """

    folder: BucketRoot
    sums: Checksums
    pool: Executor
    proxy: Address
    target: Address
    token: str | None
    requests: deque[ReceivedRequest]
    grants: Grants = field(default_factory=Grants)
    transformers: Mapping[str, str] = field(default_factory=dict[str, str])
    names: frozenset[str] = frozenset()

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a blocking function in a thread of the pool, and return the result of the function."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *args)

    def has_token(self, request: web.BaseRequest) -> bool:
        """Return whether a request has the token that clients must send, or no token is needed."""
        sent = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return self.token is None or hmac.compare_digest(sent, f"Bearer {self.token}".encode())

    def is_granted(self, request: web.BaseRequest) -> bool:
        """Return whether the query of a request holds a valid grant, which the proxy adds to its redirects."""
        path, query = decoded_target(request)
        return self.grants.allows(request.method, path, query)

    def map(self) -> dict[str, object]:
        """Return the cluster map in AIStore's form, which lists the nodes and their addresses."""
        proxy, target = _describe(self.proxy, "proxy"), _describe(self.target, "target")
        return {
            "pmap": {self.proxy.daemon_id: proxy},
            "tmap": {self.target.daemon_id: target},
            "proxy_si": proxy,
            "uuid": self.proxy.daemon_id[1:],
            "creation_time": "",
            "version": "1",
        }


def _describe(node: Address, role: str) -> dict[str, object]:
    net = {"node_hostname": node.host, "daemon_port": str(node.port), "direct_url": node.url}
    return {
        "daemon_id": node.daemon_id,
        "daemon_type": role,
        "public_net": net,
        "intra_control_net": net,
        "intra_data_net": net,
        "flags": 0,
        "id_digest": xxhash.xxh64(node.daemon_id.encode()).intdigest(),
    }


def _no_dsort(method: str) -> web.Response:
    """Answer like an AIStore that was built without dSort: there are no jobs, and none can be started."""
    if method == "GET":
        return web.Response(body=b"[]", content_type="application/json")
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=501, text="dsort not enabled (build with -tags=dsort)\n", headers=headers)


class Node(ABC):
    """A node of the cluster, which handles requests for aiohttp. A subclass is the proxy or the target."""

    role: str

    def __init__(self, cluster: Cluster, address: Address) -> None:
        self.cluster: Cluster = cluster
        self.address: Address = address
        self._started: int = time.monotonic_ns()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        try:
            return await self._respond(request)
        finally:
            connection.end()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self._remember(request)
        try:
            self._check_origin(request)
            call = parse(request)
            self.authorize(call)
            return await self.answer(call)
        except refusals.RefusedError as refusal:
            return refuse(request, refusal, node=self.name)
        except OSError as error:
            return refuse(request, refusals.from_os_error(error), node=self.name)

    def _check_origin(self, request: web.BaseRequest) -> None:
        """Refuse a request that names another host, or that a page of another web site makes a browser send."""
        reason = foreign(request.headers, self.cluster.names)
        if reason:
            raise refusals.RefusedError(403, reason)

    @property
    def name(self) -> str:
        """The node's name, in the form of AIStore's messages and headers."""
        return f"{self.role[0]}[{self.address.daemon_id}]"

    def _remember(self, request: web.BaseRequest) -> None:
        """Append a request to `Cluster.requests`."""
        path, query = split_target(request)
        headers = request.headers
        byte_range = headers.get("Range")
        received = ReceivedRequest(
            self.role,
            request.method[:_REMEMBERED_CHARS],
            path[:_REMEMBERED_CHARS],
            query[:_REMEMBERED_CHARS],
            byte_range and byte_range[:_REMEMBERED_CHARS],
            "Authorization" in headers,
        )
        self.cluster.requests.append(received)

    def common(self, call: Call) -> web.StreamResponse:
        """Answer a call that both nodes answer in the same way: health, the cluster map, ETLs and dSort."""
        if call.resource == "etl":
            return self._etls(call)
        if call.resource == "sort":
            return _no_dsort(call.request.method)
        if call.request.method not in ("GET", "HEAD"):
            raise refusals.RefusedError(405, f"{call.request.method} is not allowed here")
        if call.resource == "health":
            uptime = str(time.monotonic_ns() - self._started)
            return web.Response(headers={"Ais-Cluster-Uptime": uptime, "Ais-Node-Uptime": uptime})
        if call.resource == "daemon" and call.query.get("what") == "smap":
            return web.json_response(self.cluster.map())
        if call.resource not in _NOT_EMBEDDED:
            request = call.request
            raise refusals.no_such_call(request.method, split_target(request)[0], peer_of(request))
        raise refusals.not_served(f"/v1/{call.resource}")

    def _etls(self, call: Call) -> web.Response:
        """List the transformers of the server.

        If it has none, or if the request is not a GET (as when it starts one), answer like a build without ETLs.
        """
        if not self.cluster.transformers or call.request.method != "GET":
            raise refusals.no_etl()
        none: dict[str, object] = {"xaction_id": "", "obj_count": 0, "in_bytes": 0, "out_bytes": 0}
        return web.json_response([{"id": name, "stage": "Running", **none} for name in self.cluster.transformers])

    @abstractmethod
    def authorize(self, call: Call) -> None:
        """Refuse a call that the client may not make."""

    @abstractmethod
    async def answer(self, call: Call) -> web.StreamResponse:
        """Answer an authorized call."""
