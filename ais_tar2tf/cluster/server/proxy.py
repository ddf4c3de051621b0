"""The proxy: answers for buckets, lists objects, and redirects to objects. It must not send an object's bytes."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgpack
from aiohttp import web

from ais_tar2tf.cluster.server import refusals
from ais_tar2tf.cluster.server.archives import matcher
from ais_tar2tf.cluster.server.calls import Call, read_action, split_target
from ais_tar2tf.cluster.server.grants import GRANT
from ais_tar2tf.cluster.server.listing import ListRequest, page_as_json, page_as_msgpack, read_page
from ais_tar2tf.cluster.server.nodes import Address, Cluster, Node

__all__ = ["Proxy"]

MSGPACK = "application/msgpack"

_REDIRECTS = {
    "GET": HTTPStatus.MOVED_PERMANENTLY,
    "HEAD": HTTPStatus.TEMPORARY_REDIRECT,
    "PUT": HTTPStatus.TEMPORARY_REDIRECT,
    "DELETE": HTTPStatus.TEMPORARY_REDIRECT,
}


_STARTED_WITH = (
    "the one that the server was started with, by t2t.serve(token=…) or AIS_AUTHN_TOKEN of `ais-tar2tf serve`"
)
_NO_TOKEN = f"no token came: give {_STARTED_WITH}; over HTTP, 'Authorization: Bearer …' carries it"
_OTHER_TOKEN = f"another token is required: give {_STARTED_WITH}"

_NOT_ASCII = re.compile(r"[^\x21-\x7e]+")
_QUERY_CHARS = "%/?:@&=+$,;!~*'()[]"  # not escaped in a query


def _percent_encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))


class Proxy(Node):
    """Answers calls about buckets, and redirects calls about objects to the target."""

    role = "proxy"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.proxy)
        self._bucket_calls: dict[str, Callable[[Call], Awaitable[web.StreamResponse]]] = {
            "GET": self._list,
            "HEAD": self._describe,
            "POST": self._create,
            "DELETE": self._destroy,
        }

    def authorize(self, call: Call) -> None:
        if call.resource != "health" and not self.cluster.has_token(call.request):
            raise refusals.unauthorized(_OTHER_TOKEN if "Authorization" in call.request.headers else _NO_TOKEN)

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.resource == "objects":
            if call.query.get("archmode"):
                matcher("", call.query["archmode"])
            return self._redirect(call)
        if call.resource == "ml" and call.bucket == "moss":
            return self._batch(call)
        if call.resource != "buckets":
            return self.common(call)
        if call.name:
            raise refusals.not_served("a bucket call that names an object")
        handler = self._bucket_calls.get(call.request.method)
        if handler is None:
            raise refusals.RefusedError(405, f"{call.request.method} is not allowed for buckets")
        return await handler(call)

    # Objects

    def _redirect(self, call: Call) -> web.StreamResponse:
        """Redirect to the target before any body is read. The added query parameters admit the client there."""
        status = _REDIRECTS.get(call.request.method)
        if status is None:
            raise refusals.not_served(f"{call.request.method} for objects")
        if not call.name:
            raise refusals.no_name(split_target(call.request)[0])
        self.cluster.folder.bucket(call.bucket)
        headers = {"Location": self._location(call.request)}
        if call.request.method in ("GET", "HEAD"):  # in AIStore, the body is a page with a link
            headers["Content-Type"] = "text/html; charset=utf-8"
        return web.Response(status=status, headers=headers)

    def _batch(self, call: Call) -> web.StreamResponse:
        """Redirect a batch to the target."""
        if call.request.method != "GET":
            raise refusals.RefusedError(405, f"{call.request.method} is not allowed for batches")
        self.cluster.folder.bucket(call.name)
        job = f"/gbt-{secrets.token_hex(5)}/{self.cluster.proxy.daemon_id}/1"
        headers = {"Location": self._location(call.request, job), "Content-Type": "text/html; charset=utf-8"}
        return web.Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers=headers)

    def _location(self, request: web.BaseRequest, job: str = "") -> str:
        raw_path, raw_query = split_target(request)
        path = unquote(raw_path + job, errors="surrogateescape")
        query = parse_qsl(raw_query, keep_blank_values=True, errors="surrogateescape")
        added = {"pid": self.cluster.proxy.daemon_id, "utm": str(time.time_ns())}
        if self.cluster.token is not None:
            if any(name == GRANT for name, _ in query):
                raise refusals.bad_request(f"the parameter {GRANT!r} is the proxy's own: leave it out")
            added[GRANT] = self.cluster.grants.sign(request.method, path, [*query, *added.items()])
        if any(character in path for character in "%?# +"):
            # As Go's net/url encodes a path, and sorts a query.
            new_query = urlencode(sorted([*query, *added.items()]), errors="surrogateescape")
            path = quote(path, safe="/$&+,:;=@", errors="surrogateescape")
        else:
            new_query = f"{raw_query}{'&' if raw_query else ''}{urlencode(added)}"
            path = _NOT_ASCII.sub(_percent_encoded, path)
        return f"{self._target_url(request)}{path}?{quote(new_query, safe=_QUERY_CHARS, errors='surrogateescape')}"

    def _target_url(self, request: web.BaseRequest) -> str:
        """Return the target's URL with the address at which this client reached the proxy.

        The server may listen on a wildcard address, to which no client can connect.
        """
        target = self.cluster.target
        address = request.get_extra_info("sockname")
        host = str(address[0]) if address else target.host
        return Address(target.daemon_id, host, target.port).url

    # Buckets

    async def _list(self, call: Call) -> web.StreamResponse:
        action, value = await read_action(call.request)
        if action not in ("", "list"):
            raise refusals.not_served(f"the action {action!r}")
        if not call.bucket:
            return web.json_response([_describe_bucket(name) for name in self.cluster.folder.buckets()])
        return await self._list_objects(call, value)

    async def _list_objects(self, call: Call, value: dict[str, object]) -> web.StreamResponse:
        cluster = self.cluster
        cluster.folder.bucket(call.bucket)
        where = f"t[{cluster.target.daemon_id}]"
        listing = ListRequest.from_json(value)
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
        raise refusals.unreadable(
            f'[*apc.ActMsg] ({call.request.method}), err: {{"action": "{expected}"}} is expected'
        )
    if action != expected:
        raise refusals.not_served(f"the action {action!r}")
