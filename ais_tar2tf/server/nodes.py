"""What proxy and target share: the cluster's state, and how a request is answered; it must not know resources."""

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

from ais_tar2tf.server.calls import Call, Seen, decoded_target, parse, peer_of, refuse, split_target
from ais_tar2tf.server.checksums import Checksums
from ais_tar2tf.server.connections import Connection
from ais_tar2tf.server.folder import Folder
from ais_tar2tf.server.grants import Grants
from ais_tar2tf.server.origins import foreign
from ais_tar2tf.server.refusals import RefusedError, from_os_error, no_etl, no_such_call, not_served

__all__ = ["Address", "Cluster", "Node"]

_ELSEWHERE = frozenset(  # what a real node answers for, and this one does not
    {
        "cluster", "daemon", "dload", "download", "etl", "jobs", "metasync", "ml", "notifs", "objects", "reverse",
        "s3", "sort", "tokens", "vote", "xaction", "buckets",
    }
)  # fmt: skip

_SEEN_CHARS = 4096  # of what is remembered of a request's path, and of its query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """Who a node is, and where it listens."""

    daemon_id: str
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What both nodes work on."""

    folder: Folder
    sums: Checksums
    pool: Executor
    proxy: Address
    target: Address
    token: str | None
    seen: deque[Seen]
    grants: Grants = field(default_factory=Grants)
    transformers: Mapping[str, str] = field(default_factory=dict[str, str])  # URLs by the names of ETLs
    names: frozenset[str] = frozenset()  # host names under which clients reach this server

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call what blocks for long on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *args)

    def has_token(self, request: web.BaseRequest) -> bool:
        sent = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return self.token is None or hmac.compare_digest(sent, f"Bearer {self.token}".encode())

    def is_granted(self, request: web.BaseRequest) -> bool:
        """Return whether the proxy sent this request here: the redirect's query carries a grant for it."""
        path, query = decoded_target(request)
        return self.grants.allows(request.method, path, query)

    def map(self) -> dict[str, object]:
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
    """As a build without it: there are no jobs, and there will be none."""
    if method == "GET":
        return web.Response(body=b"[]", content_type="application/json")
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=501, text="dsort not enabled (build with -tags=dsort)\n", headers=headers)


class Node(ABC):
    """A request handler for aiohttp."""

    role: str

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Cluster = cluster
        self._started: int = time.monotonic_ns()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        try:
            return await self._answered(request)
        finally:
            connection.end()

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        self._remember(request)
        try:
            self._check_origin(request)
            call = parse(request)
            self.authorize(call)
            return await self.answer(call)
        except RefusedError as refusal:
            return refuse(request, refusal, node=self.name)
        except OSError as error:
            return refuse(request, from_os_error(error), node=self.name)

    def _check_origin(self, request: web.BaseRequest) -> None:
        reason = foreign(request.headers, self.cluster.names)
        if reason:
            raise RefusedError(403, reason)

    @property
    def name(self) -> str:
        """As AIStore writes it in messages and headers."""
        return f"{self.role[0]}[{self.address.daemon_id}]"

    @property
    @abstractmethod
    def address(self) -> Address:
        """Where this node is."""

    def _remember(self, request: web.BaseRequest) -> None:
        path, query = split_target(request)
        headers = request.headers
        shown = headers.get("Range")
        seen = Seen(
            self.role,
            request.method[:_SEEN_CHARS],
            path[:_SEEN_CHARS],
            query[:_SEEN_CHARS],
            shown and shown[:_SEEN_CHARS],
            "Authorization" in headers,
        )
        self.cluster.seen.append(seen)

    def common(self, call: Call) -> web.StreamResponse:
        """Answer what every node knows: that it is well, and who the others are."""
        if call.resource == "etl":
            return self._etls(call)
        if call.resource == "sort":
            return _no_dsort(call.request.method)
        if call.request.method not in ("GET", "HEAD"):
            raise RefusedError(405, f"{call.request.method} is not allowed here")
        if call.resource == "health":
            uptime = str(time.monotonic_ns() - self._started)
            return web.Response(headers={"Ais-Cluster-Uptime": uptime, "Ais-Node-Uptime": uptime})
        if call.resource == "daemon" and call.query.get("what") == "smap":
            return web.json_response(self.cluster.map())
        if call.resource not in _ELSEWHERE:
            request = call.request
            raise no_such_call(request.method, split_target(request)[0], peer_of(request))
        raise not_served(f"/v1/{call.resource}")

    def _etls(self, call: Call) -> web.Response:
        """Those that this server was given; as in a build without ETLs, none can be started."""
        if not self.cluster.transformers or call.request.method != "GET":
            raise no_etl()
        none: dict[str, object] = {"xaction_id": "", "obj_count": 0, "in_bytes": 0, "out_bytes": 0}
        return web.json_response([{"id": name, "stage": "Running", **none} for name in self.cluster.transformers])

    @abstractmethod
    def authorize(self, call: Call) -> None:
        """Refuse a call that may not be made."""

    @abstractmethod
    async def answer(self, call: Call) -> web.StreamResponse:
        """Do what an authorized call asks."""
