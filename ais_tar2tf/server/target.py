"""The target: an object's bytes in and out; it must not decide who may come, beyond the proxy's grant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from tarfile import TarError

from aiohttp import web

from ais_tar2tf.server.archives import Member, begin_entry, end_mark, matcher, read_members
from ais_tar2tf.server.batches import batch_pieces
from ais_tar2tf.server.calls import Call, in_time, read_body, split_target
from ais_tar2tf.server.checksums import Stated
from ais_tar2tf.server.folder import Stored
from ais_tar2tf.server.nodes import Address, Cluster, Node
from ais_tar2tf.server.ranges import parse_range
from ais_tar2tf.server.refusals import (
    RefusedError,
    bad_checksum,
    no_etl,
    no_member,
    no_name,
    no_range_inside,
    not_served,
    nothing_to_delete,
)
from ais_tar2tf.server.transforming import Passage

__all__ = ["Target"]

PASSAGES = 4  # objects that transformers work on at once: each may hold a thread of the pool for minutes


class Target(Node):
    """Serves objects from the folder. With a token configured, only to those whom the proxy sent."""

    role = "target"

    @property
    def address(self) -> Address:
        return self.cluster.target

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._passages = asyncio.Semaphore(PASSAGES)
        self._object_calls: dict[str, Callable[[Call], Awaitable[web.StreamResponse]]] = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    def authorize(self, call: Call) -> None:
        closed = self.cluster.token is not None and call.resource != "health"
        if closed and not self.cluster.is_granted(call.request):
            raise RefusedError(403, "a target is not asked directly when tokens are required: ask the proxy")

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.resource == "ml" and call.bucket == "moss":
            return await self._batch(call)
        if call.resource != "objects":
            return self.common(call)
        handler = self._object_calls.get(call.request.method)
        if handler is None:
            raise not_served(f"{call.request.method} for objects")
        if not call.name:
            raise no_name(split_target(call.request)[0])
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
            headers["Content-Type"] = "application/octet-stream"
            if span:
                headers["Accept-Ranges"] = "bytes"
                headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{size}"
            response = web.StreamResponse(status=206 if span else 200, headers=headers)
            response.content_length = count
            return await _send(call.request, response, stored, start, count)

    async def _get_inside(self, call: Call, stored: Stored) -> web.StreamResponse:
        """One member's bytes, or a tar of all that match."""
        path, pattern = call.query.get("archpath", ""), call.query.get("archregx", "")
        mode = call.query.get("archmode", "")
        query = path or f"(archregx={pattern}, archmode={mode})"
        if "Range" in call.request.headers:
            raise no_range_inside(call.request.headers["Range"], query)
        try:
            matches = (lambda name: name.removeprefix("/") == path) if path else matcher(pattern, mode)
        except RefusedError as refusal:
            what = f"{self.name}: failed to extract files that match {query} from ais://{call.bucket}/{call.name}"
            raise RefusedError(400, f"{what}, err: {refusal.message}", code=refusal.code) from refusal
        members = read_members(stored.file, call.name, matches)
        first = await self.cluster.run(lambda: next(members, None))
        if first is None:
            raise no_member(query, call.bucket, call.name)
        if path:
            headers = {"Content-Type": "application/octet-stream"}
            response = web.StreamResponse(headers=headers)
            response.content_length = first.size
            pieces = islice(begin_entry(*first), 1, None)  # without the header
            return await self._stream(call.request, response, _first_bytes(pieces, first.size))
        response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
        return await self._stream(call.request, response, _as_tar(chain([first], members)))

    async def _transform(self, call: Call) -> web.StreamResponse:
        """What a transformer makes of the object."""
        url = self.cluster.transformers.get(call.query["etl_name"])
        if url is None:
            raise no_etl()
        with self.cluster.folder.open(call.bucket, call.name) as stored:
            arguments, name = call.query.get("etl_args", ""), f"{call.bucket}/{call.name}"
            async with self._passages:
                passage = Passage(url)
                try:
                    await self.cluster.run(passage.begin, name, stored.file, stored.content.size, arguments)
                    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
                    return await self._stream(call.request, response, passage)
                finally:
                    passage.close()

    async def _batch(self, call: Call) -> web.StreamResponse:
        """A tar of objects, of their ranges and of members of shards, in the order that was asked for."""
        asked = await read_body(call.request, "[*apc.MossReq]")
        bucket = call.name.partition("/")[0]
        self.cluster.folder.bucket(bucket)
        pieces = batch_pieces(self.cluster.folder, bucket, asked)
        response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
        return await self._stream(call.request, response, pieces)

    async def _stream(
        self, request: web.BaseRequest, response: web.StreamResponse, pieces: Iterator[bytes]
    ) -> web.StreamResponse:
        """What takes reading and thinking comes from another thread; one that fails ends the connection."""
        if response.content_length is None:
            response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            while (piece := await self.cluster.run(lambda: next(pieces, None))) is not None:
                await response.write(piece)
            await response.write_eof()
        except (RefusedError, OSError, EOFError, TarError):
            if request.transport is not None:
                request.transport.abort()  # without the last chunk, so that nobody takes it for whole
        finally:
            with suppress(ValueError):  # it may be at work still, for a client that left
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
        known = sums.known(stored.content)
        if known is not None:
            return known
        job = sums.start(stored.file.fileno(), stored.content)
        # Shielded: others may wait for the same job when this request is cancelled.
        return await asyncio.shield(asyncio.wrap_future(job))

    async def _put(self, call: Call) -> web.StreamResponse:
        cluster, request = self.cluster, call.request
        stated = Stated.of(request.headers)
        with cluster.folder.upload(call.bucket, call.name) as upload:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await _say_continue(request)
            while chunk := await in_time(request.content.readany()):
                await cluster.run(upload.write, chunk)
                stated.update(chunk)
            if stated.differs:
                raise bad_checksum(stated.shown, call.bucket, call.name)
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


def _as_tar(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        yield from begin_entry(*member)
    yield end_mark()


def _first_bytes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Without what fills the last block."""
    for piece in pieces:
        if size > 0:
            yield piece[:size]
        size -= len(piece)


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
