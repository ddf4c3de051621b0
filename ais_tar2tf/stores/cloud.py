"""s3://, gs:// and az:// — one bucket or container of a cloud.

obstore signs a URL for each request, and our own HTTP clients send the request. The signature is a part of the URL,
so the URL is never shown. obstore itself lists, copies, and sends large objects. If obstore has no key to sign with,
obstore also reads the bodies, except from public buckets of S3, which need no signature.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from ais_tar2tf.base.urls.names import check_object_name
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.stores.base import Body, Identity, Interrupt, ObjectInfo, Store
from ais_tar2tf.stores.cloud_body import StreamBody
from ais_tar2tf.stores.listing import WITHOUT_LISTING, checked_listing
from ais_tar2tf.stores.memory import BytesBody
from ais_tar2tf.stores.obstore import DEFAULT_REGION, endpoint_of, is_on, is_public, obstore
from ais_tar2tf.stores.obstore_client import ObstoreClient
from ais_tar2tf.stores.transport.answers import info_in
from ais_tar2tf.stores.transport.bodies import body_of, info_of, range_header
from ais_tar2tf.stores.transport.control import ControlPlane
from ais_tar2tf.stores.transport.pool import HttpPool
from ais_tar2tf.stores.transport.tls import aws_tls

if TYPE_CHECKING:
    from ais_tar2tf.stores.async_steps import Steps

__all__ = ["CloudStore"]

_MIN_MULTIPART = 64 * MIB  # larger objects are sent in parts, each retried alone; S3 requires parts above 5 GiB
_MIN_PART = 8 * MIB
_MAX_PARTS = 9_000  # S3 takes 10,000
_PARTS_AT_ONCE = 2  # parts held in memory
_MAX_PAGE = 1_000  # names on a page of S3
_MIN_REDIRECTED = 8 * MIB  # a larger body does not survive a redirect, so AIStore's /s3 is asked for the target first
_EXISTS = frozenset({409})
_ABSENT = frozenset({404})


class CloudStore(Store):
    """One bucket or container of S3, Google Cloud Storage or Azure, or of a server that speaks one of their APIs."""

    def __init__(self, scheme: str, bucket: str, read: Read, *, endpoint: str | None = None) -> None:
        if bucket in ("", ".", ".."):
            raise StoreError(f"{bucket!r} is no name of a bucket", url=f"{scheme}://")
        self._scheme = scheme
        self._bucket = bucket
        self._read = read
        self._tls = aws_tls(read.tls) if scheme == "s3" else read.tls
        self._endpoint = endpoint_of(scheme, endpoint)
        self._is_public = is_public(scheme, self._endpoint)
        self._pool = HttpPool(read.timeouts, self._tls)
        self._control = ControlPlane(self._endpoint or self.url(""), None, read.timeouts, read.retry, tls=self._tls)
        self._obstore = ObstoreClient(scheme, bucket, self._endpoint, read, self._tls, pool=self._pool)

    def __repr__(self) -> str:
        at = f" at {self._endpoint}" if self._endpoint else ""
        return f"CloudStore({self._scheme}://{self._bucket}{at})"

    def url(self, name: str) -> str:
        return f"{self._scheme}://{self._bucket}/{name}"

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        address = self._signed("GET", name)
        if address is None:
            return self._stream(name, start, stop, interrupt)
        try:
            answer = self._pool.request(address, range_header(start, stop), shown=self.url(name), interrupt=interrupt)
            body = body_of(answer, name, start, stop)
            return body if body is not None else self.open(name, interrupt=interrupt)
        except ObjectChanged as error:
            # MinIO's status 416 does not state the object's size, which may be exactly `start`.
            info = self.head_once(name, interrupt=interrupt) if start else None
            if info is None or info.size != start:
                raise
            del error
            return BytesBody(b"", info, start)

    def head_once(self, name: str, *, interrupt: Interrupt | None = None) -> ObjectInfo:
        address = self._signed("HEAD", name)
        if address is None:
            return self.head(name)
        answer = self._pool.request(address, {}, shown=self.url(name), method="HEAD", interrupt=interrupt)
        return info_of(answer, name)

    def _stream(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        shown = self.url(name)
        options: Any = {"range": {"offset": start} if stop is None else (start, stop)} if start or stop else {}
        try:
            result = self._obstore.call_once(lambda store: obstore().get(store, name, options=options), shown)
        except TransportError:
            raise
        except StoreError:
            info = self.head(name)
            if info.size is None or start < info.size:
                raise
            return BytesBody(b"", info, start)
        return StreamBody(result, _info(name, result.meta), shown, interrupt, self._read.timeouts)

    def head(self, name: str) -> ObjectInfo:
        address, shown = self._signed("HEAD", name), self.url(name)
        if address is None:
            return _info(name, self._obstore.call(lambda store: obstore().head(store, name), shown))
        return info_in(self._control.call("HEAD", address, shown=shown).headers, name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return checked_listing(prefix, self._entries(prefix), self.url(prefix), self._read.limits)

    def _entries(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects of a listing page by page, also some whose names do not begin with `prefix`.

        obstore lists whole folders; `offset` leaves out the names of the folder that sort before the prefix. obstore
        requests more pages while the server sends empty ones, so this method bounds the time until the next names.
        """
        shown, seconds = self.url(prefix), self._read.timeouts.listing
        if self._tls.certificate:
            raise StoreError(
                f"obstore shows no client certificate, so it cannot list here; {WITHOUT_LISTING}", url=shown
            )
        from ais_tar2tf.stores.async_steps import Steps  # asyncio takes as long to import as all of this package

        folder, offset = prefix.rpartition("/")[0], _just_before(prefix)
        page_size = min(_MAX_PAGE, self._read.limits.listing_page)

        def begin(store: Any) -> tuple[Steps[Any], Any]:
            steps = Steps(obstore().list(store, folder or None, offset=offset, chunk_size=page_size))
            try:
                return steps, _next_page(steps, seconds, shown)
            except BaseException:
                steps.close()
                raise

        steps, page = self._obstore.call(begin, shown)
        try:
            while page:
                for entry in page:
                    yield _info(entry["path"], entry)
                page = self._obstore.call(lambda _: _next_page(steps, seconds, shown), shown)
        finally:
            steps.close()

    def put(self, name: str, data: bytes | Path) -> None:
        address, shown = self._signed("PUT", name), self.url(name)
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        is_redirected = address is not None and size >= _MIN_REDIRECTED and self._redirects(name)
        if address is None or (size >= _MIN_MULTIPART and not is_redirected):
            part = max(_MIN_PART, size // _MAX_PARTS)
            how = {"chunk_size": part, "max_concurrency": _PARTS_AT_ONCE}
            self._obstore.call(lambda store: obstore().put(store, name, data, **how), shown, silent=True)
        else:
            headers = {"x-ms-blob-type": "BlockBlob"} if self._scheme == "az" else {}
            self._control.call("PUT", address, shown=shown, data=data, headers=headers, asks_first=is_redirected)

    def move(self, name: str, to: str) -> bool:
        check_object_name(name, url=self.url(name))
        check_object_name(to, url=self.url(to))
        if name == to:
            self.head(name)  # raises an error if there is no such object
            return True
        if self._tls.certificate:
            return False  # obstore shows no client certificate
        if name + to != quote(name + to) and self._redirects(name):
            return False  # AIStore's /s3 encodes the source's name twice, and the other name not at all
        self._obstore.call(lambda store: obstore().copy(store, name, to), self.url(name))
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        address, shown = self._signed("DELETE", name), self.url(name)
        if address is not None:
            self._control.call("DELETE", address, shown=shown, accept=_ABSENT)
            return
        with contextlib.suppress(ShardNotFound):
            self._obstore.call(lambda store: obstore().delete(store, name), shown)

    def _redirects(self, name: str) -> bool:
        """Return whether this is AIStore's /s3, whose proxy redirects every request for an object."""
        address = self._signed("HEAD", name) or ""
        answer = self._control.call("HEAD", address, shown=self.url(name), accept=_ABSENT, follow=False)
        return answer.redirect is not None

    def create(self) -> None:
        """Make a bucket of S3. In other clouds, only check that the bucket exists."""
        shown, region = self.url(""), self._obstore.region
        address = self._signed("PUT", "") if self._scheme == "s3" else None
        if address is None:
            try:
                next(self.list(""), None)
            except ShardNotFound:
                message = "there is no such bucket; buckets are made with the provider's own tools"
                raise ShardNotFound(message, url=shown) from None
            return
        place = f"<LocationConstraint>{escape(region)}</LocationConstraint>"
        body = f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>"
        data = b"" if region == DEFAULT_REGION else body.encode()
        self._control.call("PUT", address, shown=shown, data=data, accept=_EXISTS)

    def close(self) -> None:
        self._obstore.close()
        self._pool.close()
        self._control.close()

    def _signed(self, method: str, name: str) -> str | None:
        """Return the URL to which a request is sent; None if only obstore can send the request."""
        check_object_name(name, url=self.url(name))
        if self._is_public:
            if self._scheme != "s3" or is_on("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"):
                return None
            endpoint = self._endpoint or f"https://s3.{self._obstore.region}.amazonaws.com"
            return f"{endpoint}/{quote(self._bucket)}/{quote(name)}"
        return self._obstore.sign(method, name, self.url(name))


def _next_page(steps: Steps[Any], seconds: float, shown: str) -> Any:
    try:
        return steps.next(seconds)
    except TimeoutError:
        raise StoreError(
            f"the listing does not go on: fewer than {_MAX_PAGE:,} names came within {seconds:g} s, "
            f"Timeouts.listing; {WITHOUT_LISTING}",
            url=shown,
        ) from None


def _info(name: str, meta: Any) -> ObjectInfo:
    size = int(meta["size"])
    identity = Identity(version=meta["version"] or "", etag=meta["e_tag"] or "", size=size)
    return ObjectInfo(name, size, identity)


def _just_before(prefix: str) -> str | None:
    r"""Return a name that sorts just before all names that begin with `prefix`; None for a whole folder.

    >>> _just_before("train-1") == "train-0\N{REPLACEMENT CHARACTER}", _just_before("train/")
    (True, None)
    """
    last = ord(prefix[-1]) if prefix else 0
    if not prefix or prefix.endswith("/") or not 0x21 < last < 0xD800:
        return None  # the whole folder is listed
    return prefix[:-1] + chr(last - 1) + "\N{REPLACEMENT CHARACTER}"
