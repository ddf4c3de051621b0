"""The proxy: buckets, listings, and the way to objects; it must not touch an object's bytes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import msgpack
from aiohttp import web

from ais_tar2tf.server.calls import Call, read_action, split_target
from ais_tar2tf.server.listing import Listing, page_as_json, page_as_msgpack, read_page
from ais_tar2tf.server.nodes import Address, Cluster, Node
from ais_tar2tf.server.refusals import RefusedError, bad_request, not_served, unauthorized

__all__ = ["Proxy"]

MSGPACK = "application/msgpack"

_REDIRECTS = {
    "GET": HTTPStatus.MOVED_PERMANENTLY,
    "HEAD": HTTPStatus.TEMPORARY_REDIRECT,
    "PUT": HTTPStatus.TEMPORARY_REDIRECT,
    "DELETE": HTTPStatus.TEMPORARY_REDIRECT,
}


class Proxy(Node):
    """Answers for buckets itself, and sends everybody who wants an object to the target."""

    role = "proxy"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._bucket_calls: dict[str, Callable[[Call], Awaitable[web.StreamResponse]]] = {
            "GET": self._list,
            "HEAD": self._describe,
            "POST": self._create,
            "DELETE": self._destroy,
        }

    def authorize(self, call: Call) -> None:
        if call.resource != "health" and not self.cluster.has_token(call.request):
            raise unauthorized("a token is required: send 'Authorization: Bearer …' with the server's token")

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.resource == "objects":
            return self._redirect(call)
        if call.resource != "buckets":
            return self.common(call)
        if call.name:
            raise not_served("a bucket call that names an object")
        handler = self._bucket_calls.get(call.request.method)
        if handler is None:
            raise RefusedError(405, f"{call.request.method} is not allowed for buckets")
        return await handler(call)

    # Objects

    def _redirect(self, call: Call) -> web.StreamResponse:
        """Say where the object is, before any body is read. The query that is added lets the client in there."""
        status = _REDIRECTS.get(call.request.method)
        if status is None:
            raise not_served(f"{call.request.method} for objects")
        if not call.name:
            raise bad_request("an object's name is missing: /v1/objects/BUCKET/NAME")
        self.cluster.folder.bucket(call.bucket)
        return web.Response(status=status, headers={"Location": self._location(call.request)})

    def _location(self, request: web.BaseRequest) -> str:
        path, query = split_target(request)
        pid, utm = self.cluster.proxy.daemon_id, time.time_ns()
        granted = f"{path}?{query}{'&' if query else ''}pid={pid}&utm={utm}"
        safe = quote(granted, safe="%/?:@&=+$,;!~*'()[]#", errors="surrogateescape")
        return self._target_url(request) + safe

    def _target_url(self, request: web.BaseRequest) -> str:
        """Name the target by the address that this client reached us at: a wildcard is none to connect to."""
        target = self.cluster.target
        address = request.get_extra_info("sockname")
        host = str(address[0]) if address else target.host
        return Address(target.daemon_id, host, target.port).url

    # Buckets

    async def _list(self, call: Call) -> web.StreamResponse:
        action, value = await read_action(call.request)
        if action not in ("", "list"):
            raise not_served(f"the action {action!r}")
        if not call.bucket:
            return web.json_response([_describe_bucket(name) for name in self.cluster.folder.buckets()])
        return await self._list_objects(call, value)

    async def _list_objects(self, call: Call, value: dict[str, object]) -> web.StreamResponse:
        cluster = self.cluster
        cluster.folder.bucket(call.bucket)
        where = f"t[{cluster.target.daemon_id}]"
        listing = Listing.of(value)
        page = await cluster.run(
            lambda: read_page(cluster.folder, cluster.sums, call.bucket, listing, location=where)
        )
        uuid = str(value.get("uuid") or secrets.token_hex(5))
        if MSGPACK in call.request.headers.get("Accept", ""):
            return web.Response(body=msgpack.packb(page_as_msgpack(page, uuid)), content_type=MSGPACK)
        return web.json_response(page_as_json(page, uuid))

    async def _describe(self, call: Call) -> web.StreamResponse:
        self.cluster.folder.bucket(call.bucket)
        props = {"provider": "ais", "checksum": {"type": "xxhash2"}, "versioning": {"enabled": True}}
        return web.Response(headers={"Ais-Bucket-Props": json.dumps(props)})

    async def _create(self, call: Call) -> web.StreamResponse:
        await _expect_action(call, "create-bck")
        self.cluster.folder.create(call.bucket)
        return web.Response()

    async def _destroy(self, call: Call) -> web.StreamResponse:
        await _expect_action(call, "destroy-bck")
        doomed = self.cluster.folder.detach(call.bucket)
        await self.cluster.run(self.cluster.folder.erase, doomed)
        return web.Response()


def _describe_bucket(name: str) -> dict[str, object]:
    return {"name": name, "provider": "ais", "namespace": {"uuid": "", "name": ""}}


async def _expect_action(call: Call, expected: str) -> None:
    action, _ = await read_action(call.request)
    if not action:
        raise bad_request(f'the body must be {{"action": "{expected}"}}')
    if action != expected:
        raise not_served(f"the action {action!r}")
