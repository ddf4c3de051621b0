"""The target: an object's bytes in and out; it must not decide who may come, beyond the proxy's grant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from ais_tar2tf.server.calls import Call, split_target
from ais_tar2tf.server.folder import Stored
from ais_tar2tf.server.nodes import Address, Cluster, Node
from ais_tar2tf.server.ranges import parse_range
from ais_tar2tf.server.refusals import RefusedError, no_name, not_served, nothing_to_delete

__all__ = ["Target"]


class Target(Node):
    """Serves objects from the folder. With a token configured, only to those whom the proxy sent."""

    role = "target"

    @property
    def address(self) -> Address:
        return self.cluster.target

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._object_calls: dict[str, Callable[[Call], Awaitable[web.StreamResponse]]] = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    def authorize(self, call: Call) -> None:
        closed = self.cluster.token is not None and call.resource != "health"
        if closed and not self.cluster.is_granted(call):
            raise RefusedError(403, "a target is not asked directly when tokens are required: ask the proxy")

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.resource != "objects":
            return self.common(call)
        handler = self._object_calls.get(call.request.method)
        if handler is None:
            raise not_served(f"{call.request.method} for objects")
        if not call.name:
            raise no_name(split_target(call.request)[0])
        return await handler(call)

    async def _get(self, call: Call) -> web.StreamResponse:
        with self.cluster.folder.open(call.bucket, call.name) as stored:
            size = stored.content.size
            span = parse_range(call.request.headers.get("Range"), size, f"ais://{call.bucket}/{call.name}")
            start, count = span or (0, size)
            headers = _headers(await self._checksum(stored), stored.version)
            headers["Content-Type"] = "application/octet-stream"
            if span:
                headers["Accept-Ranges"] = "bytes"
                headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{size}"
            response = web.StreamResponse(status=206 if span else 200, headers=headers)
            response.content_length = count
            return await _send(call.request, response, stored, start, count)

    async def _head(self, call: Call) -> web.StreamResponse:
        with self.cluster.folder.open(call.bucket, call.name) as stored:
            headers = _headers(await self._checksum(stored), stored.version)
            headers |= {
                "Ais-Bucket-Name": call.bucket,
                "Ais-Bucket-Provider": "ais",
                "Ais-Location": f"{self.name}:mp[/, folder, embedded]",
                "Ais-Mirror-Copies": "1",
                "Ais-Mirror-Paths": "[/]",
                "Ais-Name": call.name,
                "Ais-Present": "true",
            }
            response = web.StreamResponse(headers=headers)
            response.content_length = stored.content.size
            return response

    async def _checksum(self, stored: Stored) -> str:
        sums = self.cluster.sums
        known = sums.known(stored.content)
        if known is not None:
            return known
        job = sums.start(stored.file.fileno(), stored.content)
        # Shielded: others may wait for the same job when this request is cancelled.
        return await asyncio.shield(asyncio.wrap_future(job))

    async def _put(self, call: Call) -> web.StreamResponse:
        cluster, request = self.cluster, call.request
        with cluster.folder.upload(call.bucket, call.name) as upload:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await _say_continue(request)
            while chunk := await request.content.readany():
                await cluster.run(upload.write, chunk)
            content, version = cluster.folder.commit(call.bucket, call.name, upload)
        cluster.sums.remember(content, upload.checksum)
        return web.Response(headers=_headers(upload.checksum, version))

    async def _delete(self, call: Call) -> web.StreamResponse:
        try:
            self.cluster.folder.delete(call.bucket, call.name)
        except RefusedError as refusal:
            if refusal.code == "ErrNotFound":
                raise nothing_to_delete(call.bucket, call.name) from refusal
            raise
        return web.Response()


def _headers(checksum: str, version: int) -> dict[str, str]:
    return {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": checksum, "Ais-Version": str(version)}


async def _say_continue(request: web.BaseRequest) -> None:
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # that was no part of the answer


async def _send(
    request: web.BaseRequest, response: web.StreamResponse, stored: Stored, start: int, count: int
) -> web.StreamResponse:
    """Send from the page cache to the socket without a copy here. A client that left is not an error."""
    try:
        await response.prepare(request)
        transport = request.transport
        if count and transport is not None and not transport.is_closing():
            loop = asyncio.get_running_loop()
            sent = await loop.sendfile(transport, stored.file, start, count)
            if sent < count:
                transport.abort()  # the file was cut while it was sent: end short, so that the client can tell
        await response.write_eof()
    except ConnectionError:
        pass
    return response
