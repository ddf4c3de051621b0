"""The target. It is one of the two nodes of the embedded server, and sends, receives and deletes objects.

The other node is the proxy. The target must not check tokens. If the server has a token, the proxy checks
the token of a request, and redirects the client to the target by a signed URL. The signature is the *grant* (see
`grants.py`), and the target refuses requests without a grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice

from aiohttp import web

from ais_tar2tf.cluster.server import refusals
from ais_tar2tf.cluster.server.archives import Member, end_mark, matcher, read_members, tar_entry
from ais_tar2tf.cluster.server.batches import batch_pieces
from ais_tar2tf.cluster.server.calls import Call, in_time, read_body, split_target
from ais_tar2tf.cluster.server.checksums import StatedChecksum
from ais_tar2tf.cluster.server.folder import Stored
from ais_tar2tf.cluster.server.nodes import Cluster, Node
from ais_tar2tf.cluster.server.ranges import parse_range
from ais_tar2tf.cluster.server.transforming import Passage

__all__ = ["Target"]

_BYTES, _TAR = "application/octet-stream", "application/x-tar"
PASSAGES = 4  # the most objects that ETLs transform at once: each transformation may block a thread for minutes


class Target(Node):
    """Serves objects from the server's folder.

    If the server has a token, the target answers only `health` and the requests that the proxy redirected.
    """

    role = "target"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.target)
        self._passages = asyncio.Semaphore(PASSAGES)
        self._object_calls: dict[str, Callable[[Call], Awaitable[web.StreamResponse]]] = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    def authorize(self, call: Call) -> None:
        needs_grant = self.cluster.token is not None and call.resource != "health"
        if needs_grant and not self.cluster.is_granted(call.request):
            raise refusals.RefusedError(403, "a target is not asked directly when tokens are required: ask the proxy")

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.resource == "ml" and call.bucket == "moss":
            return await self._batch(call)
        if call.resource != "objects":
            return self.common(call)
        handler = self._object_calls.get(call.request.method)
        if handler is None:
            raise refusals.not_served(f"{call.request.method} for objects")
        if not call.name:
            raise refusals.no_name(split_target(call.request)[0])
        return await handler(call)

    async def _get(self, call: Call) -> web.StreamResponse:
        if call.query.get("etl_name"):
            return await self._transform(call)
        with self.cluster.folder.open(call.bucket, call.name) as stored:
            if call.query.get("archpath") or call.query.get("archmode"):
                return await self._get_inside(call, stored)
            size = stored.content.size
            span = parse_range(call.request.headers.get("Range"), size, f"ais://{call.bucket}/{call.name}")
            start, count = span or (0, size)
            headers = _headers(await self._checksum(stored), stored.version)
            headers["Content-Type"] = _BYTES
            if span:
                headers["Accept-Ranges"] = "bytes"
                headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{size}"
            response = web.StreamResponse(status=206 if span else 200, headers=headers)
            response.content_length = count
            return await _send(call.request, response, stored, start, count)

    async def _get_inside(self, call: Call, stored: Stored) -> web.StreamResponse:
        """Send the member that `archpath` names, or a tar of all members that match `archregx` and `archmode`."""
        path, pattern = call.query.get("archpath", ""), call.query.get("archregx", "")
        mode = call.query.get("archmode", "")
        query = path or f"(archregx={pattern}, archmode={mode})"
        if "Range" in call.request.headers:
            raise refusals.no_range_inside(call.request.headers["Range"], query)
        try:
            matches = (lambda name: name.removeprefix("/") == path) if path else matcher(pattern, mode)
        except refusals.RefusedError as refusal:
            what = f"{self.name}: failed to extract files that match {query} from ais://{call.bucket}/{call.name}"
            raise refusals.RefusedError(400, f"{what}, err: {refusal.message}", code=refusal.code) from refusal
        members = read_members(stored.file, call.name, matches)
        first = await self.cluster.run(lambda: next(members, None))
        if first is None:
            raise refusals.no_member(query, call.bucket, call.name)
        if path:
            pieces = islice(tar_entry(*first), 1, None)  # the first piece is the tar header
            return await self._stream(call.request, _BYTES, _first_bytes(pieces, first.size), size=first.size)
        return await self._stream(call.request, _TAR, _as_tar(chain([first], members)))

    async def _transform(self, call: Call) -> web.StreamResponse:
        """Send the output that the requested ETL makes of the object."""
        url = self.cluster.transformers.get(call.query["etl_name"])
        if url is None:
            raise refusals.no_etl()
        with self.cluster.folder.open(call.bucket, call.name) as stored:
            arguments, name = call.query.get("etl_args", ""), f"{call.bucket}/{call.name}"
            async with self._passages:
                passage = Passage(url)
                try:
                    await self.cluster.run(passage.begin, name, stored.file, stored.content.size, arguments)
                    return await self._stream(call.request, _BYTES, passage)
                finally:
                    passage.close()

    async def _batch(self, call: Call) -> web.StreamResponse:
        """Send a tar of objects, ranges of objects and members of shards, in the requested order."""
        request = await read_body(call.request, "[*apc.MossReq]")
        bucket = call.name.partition("/")[0]
        self.cluster.folder.bucket(bucket)
        pieces = batch_pieces(self.cluster.folder, bucket, request)
        return await self._stream(call.request, _TAR, pieces)

    async def _stream(
        self, request: web.BaseRequest, media_type: str, pieces: Iterator[bytes], *, size: int | None = None
    ) -> web.StreamResponse:
        """Send pieces, which another thread computes. If computing a piece fails, abort the connection.

        `size` is the total size of the pieces; None if it is not known.
        """
        response = web.StreamResponse(headers={"Content-Type": media_type})
        if size is None:
            response.enable_chunked_encoding()
        response.content_length = size
        try:
            await response.prepare(request)
            while (piece := await self.cluster.run(lambda: next(pieces, None))) is not None:
                await response.write(piece)
            await response.write_eof()
        except Exception:  # noqa: BLE001  # decompressors raise many kinds of errors
            if request.transport is not None:
                request.transport.abort()  # the end of the response is missing, so the client notices the failure
        finally:
            with suppress(ValueError):  # raised if the client disconnected while a thread still runs the generator
                getattr(pieces, "close", bool)()
        return response

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
        cached = sums.cached(stored.content)
        if cached is not None:
            return cached
        job = sums.start(stored.file.fileno(), stored.content)
        # `shield` keeps the job running if this request is cancelled: other requests may wait for the same job.
        return await asyncio.shield(asyncio.wrap_future(job))

    async def _put(self, call: Call) -> web.StreamResponse:
        cluster, request = self.cluster, call.request
        stated = StatedChecksum(request.headers)
        with cluster.folder.upload(call.bucket, call.name) as upload:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await _say_continue(request)
            while chunk := await in_time(request.content.readany()):
                await cluster.run(upload.write, chunk)
                stated.update(chunk)
            if stated.differs:
                raise refusals.bad_checksum(stated.shown, call.bucket, call.name)
            content, version = cluster.folder.commit(call.bucket, call.name, upload)
        cluster.sums.remember(content, upload.checksum)
        return web.Response(headers=_headers(upload.checksum, version))

    async def _delete(self, call: Call) -> web.StreamResponse:
        try:
            self.cluster.folder.delete(call.bucket, call.name)
        except refusals.RefusedError as refusal:
            if refusal.code == "ErrNotFound":
                raise refusals.nothing_to_delete(call.bucket, call.name) from refusal
            raise
        return web.Response()


def _as_tar(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        yield from tar_entry(*member)
    yield end_mark()


def _first_bytes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of the pieces: the bytes of a tar's member without the padding after them."""
    for piece in pieces:
        if size > 0:
            yield piece[:size]
        size -= len(piece)


def _headers(checksum: str, version: int) -> dict[str, str]:
    return {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": checksum, "Ais-Version": str(version)}


async def _say_continue(request: web.BaseRequest) -> None:
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # aiohttp must not count the bytes of "100 Continue" as bytes of the response


async def _send(
    request: web.BaseRequest, response: web.StreamResponse, stored: Stored, start: int, count: int
) -> web.StreamResponse:
    """Send `count` bytes of a file, from `start` on, without copying them. A client that disconnects is no error."""
    try:
        await response.prepare(request)
        transport = request.transport
        if count and transport is not None and not transport.is_closing():
            loop = asyncio.get_running_loop()
            sent = await loop.sendfile(transport, stored.file, start, count)
            if sent < count:
                transport.abort()  # the file was truncated while it was sent, and the client must notice this
        await response.write_eof()
    except ConnectionError:
        pass
    return response
