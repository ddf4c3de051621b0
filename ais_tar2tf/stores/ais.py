"""ais:// — one bucket of an AIStore cluster, over its native API.

The proxy redirects each request for an object to a target. The URL of the redirect is itself the grant: it is sent
verbatim, without the token, and never shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from ais_tar2tf.base.urls.names import check_object_name
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Read
from ais_tar2tf.stores.ais_batch import batch_request, max_batch_bytes, unpack
from ais_tar2tf.stores.ais_endpoint import check_bucket_name, endpoint_url
from ais_tar2tf.stores.ais_listing import all_entries, read_page
from ais_tar2tf.stores.base import Identity, Interrupt, ObjectInfo, Store
from ais_tar2tf.stores.capabilities import MultiRange, MultiRangeAnswer
from ais_tar2tf.stores.listing import checked_listing
from ais_tar2tf.stores.transport.answers import info_in
from ais_tar2tf.stores.transport.bodies import HttpBody, body_of, info_of, range_header
from ais_tar2tf.stores.transport.control import ControlPlane
from ais_tar2tf.stores.transport.pool import HttpPool
from ais_tar2tf.stores.transport.tls import ais_tls
from ais_tar2tf.stores.transport.tokens import Token, TokenSource

__all__ = ["AisStore", "ShardMembers"]

_EXISTS = frozenset({409})
_ABSENT = frozenset({404})
_NOT_IMPLEMENTED = frozenset({501})  # accepted, because another try would get the same answer
_CANNOT_RENAME = frozenset({400, 403, 405, 500, 501})  # AIStore has no status of its own for its reasons
_LOST_IN_PATHS = frozenset("%#?")
_LIST_ARCHIVES = "8"  # a flag of listings: list also the members of archives
_MAX_RANGES = 128  # in one GetBatch
_MAX_PAGE = 10_000  # names, AIStore's own limit


class ShardMembers(NamedTuple):
    """The members of a shard, as the cluster lists them."""

    shard: ObjectInfo
    members: list[tuple[str, int]]  # name and size, in the order of names, which need not be that of the shard
    listing_bytes: int  # the size of the answer


class AisStore(Store, MultiRange):
    """One bucket of an AIStore cluster; with `etl`, its objects are read through the ETL of that name."""

    def __init__(
        self,
        bucket: str,
        read: Read,
        *,
        endpoint: str | None = None,
        token: TokenSource | None = None,
        provider: str = "ais",
        etl: str | None = None,
    ) -> None:
        check_bucket_name(bucket, provider)
        self._bucket = bucket
        self._provider = provider
        self._etl = {"etl_name": etl} if etl else {}
        self._endpoint = endpoint_url(endpoint)
        self._read = read
        tls, bearer = ais_tls(read.tls), Token(token, f"{provider}://{bucket}")
        self._pool = HttpPool(read.timeouts, tls, bearer)
        self._has_batches = True  # until an answer shows that the server has no GetBatch
        self._control = ControlPlane(self._endpoint, bearer, read.timeouts, read.retry, tls=tls)

    def __repr__(self) -> str:
        return f"AisStore({self._provider}://{self._bucket} at {self._endpoint})"

    def url(self, name: str) -> str:
        return f"{self._provider}://{self._bucket}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        if not self._etl:
            return self._open(name, start, stop, interrupt)
        # The output of an ETL has no ranges. To a transformer that it reaches by WebSocket, the target does not name
        # the bucket, so the URL of the shard is sent along.
        query = {**self._etl, "etl_args": json.dumps({"shard": self.url(name)})}
        return self._open(name, 0, None, interrupt, query)

    def open_members(self, name: str, pattern: str, *, interrupt: Interrupt | None = None) -> HttpBody:
        """Request a tar of those members of a shard whose names match a regular expression, in the shard's order.

        The target reads the whole shard. Its answer states neither a length nor a checksum nor a version.
        """
        query = {"archregx": pattern, "archmode": "regexp"}
        return self._open(name, 0, None, interrupt, query)

    def _open(
        self,
        name: str,
        start: int,
        stop: int | None,
        interrupt: Interrupt | None,
        query: Mapping[str, str] | None = None,
    ) -> HttpBody:
        url, headers = self._object_url(name, query), range_header(start, stop)
        answer = self._pool.request(url, headers, shown=self.url(name), interrupt=interrupt)
        body = body_of(answer, name, start, stop)
        return body if body is not None else self.open(name, interrupt=interrupt)

    def head_once(self, name: str, *, interrupt: Interrupt | None = None) -> ObjectInfo:
        url, shown = self._object_url(name), self.url(name)
        return info_of(self._pool.request(url, {}, shown=shown, method="HEAD", interrupt=interrupt), name)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._object_url(name), shown=self.url(name))
        return info_in(answer.headers, name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        shown, page_size = self.url(prefix), self._read.limits.listing_page

        def ask(prefix: str, token: str) -> tuple[list[ObjectInfo], str]:
            return read_page(self._list_page(prefix, page_size, shown, continuation_token=token), shown)

        return checked_listing(prefix, all_entries(prefix, ask, shown), shown, self._read.limits)

    def list_members(self, name: str) -> ShardMembers | None:
        """List the members of a shard; return None where the listing may be incomplete.

        AIStore (1.5) loses those members of a shard that do not fit on the page on which the shard begins.
        """
        shown = self.url(name)
        content = self._list_page(name, _MAX_PAGE, shown, flags=_LIST_ARCHIVES)
        entries, following = read_page(content, shown)
        shard = next((info for info in entries if info.name == name), None)
        if shard is None or following:
            return None
        folder = f"{name}/"
        members = [
            (info.name.removeprefix(folder), info.size or 0) for info in entries if info.name.startswith(folder)
        ]
        return ShardMembers(shard, members, len(content))

    def _list_page(self, prefix: str, size: int, shown: str, **options: str) -> bytes:
        value = {"prefix": prefix, "pagesize": size, "props": "name,size,version", **options}
        json = {"action": "list", "value": value}
        return self._control.call("GET", self._bucket_url(), shown=shown, json=json).content

    def batch(self, ranges: Sequence[tuple[str, int, int]]) -> bytes:
        """Return a tar of each (name, start, length), in this order; a missing object is a member `__404__/…`.

        One target collects the ranges from the others. The whole answer is held in memory.

        Raises:
            StoreError: The server has no GetBatch, or every other failure.
        """
        answer = self._control.call(
            "GET",
            self._batch_url(),
            shown=self.url(""),
            json=batch_request(ranges),
            accept=_NOT_IMPLEMENTED,
            max_bytes=max_batch_bytes(ranges),
        )
        if not answer.ok:
            raise StoreError("GetBatch is not known to this server", url=self.url(""))
        return answer.content

    across_objects: bool = True

    @property
    def ranges_at_once(self) -> int:
        return _MAX_RANGES if self._has_batches and not self._etl else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer | None:
        """Read ranges by GetBatch; return None after any failure, because single requests get better errors.

        AIStore (1.5) states the names and sizes of the ranges, and no version. So `fetch` requests one in 64 ranges
        of a shard singly, to learn the content that the batches are read from. That range is wanted anyway: it takes
        0.8 ms alone and 1.1 ms as one of 128 ranges in a batch, and an epoch does not become measurably slower.
        A HEAD takes 3.5 ms, and records in random order come from nearly as many shards as records. A listing takes
        6 ms for 40 shards and 46 ms for 2,000, and proves only which versions existed before or after the batch.
        (Measured on two cores, with the cluster on cores of its own.)
        """
        ranges = [(name, start, stop - start) for name, start, stop in wanted]
        document = {**batch_request(ranges), "onob": True}

        url, headers, body = self._batch_url(), {"Content-Type": "application/json"}, json.dumps(document).encode()
        try:
            answer = self._pool.request(url, headers, shown=self.url(""), body=body, interrupt=interrupt)
            if answer.status != 200:
                raise answer.error()
            content = answer.content(max_batch_bytes(ranges))
        except TransportError:
            return None
        except StoreError:
            self._has_batches = False  # the server has no GetBatch, or the user may not use it
            return None
        pieces = unpack(content, ranges)
        return None if pieces is None else MultiRangeAnswer(list(map(memoryview, pieces)), Identity())

    def _batch_url(self) -> str:
        return f"{self._endpoint}/v1/ml/moss/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def bucket_document(self) -> dict[str, str]:
        """Return the bucket as the documents of AIStore's jobs name it."""
        return {"name": self._bucket, "provider": self._provider}

    def put(self, name: str, data: bytes | Path) -> None:
        self._control.call("PUT", self._object_url(name), shown=self.url(name), data=data, asks_first=True)

    def move(self, name: str, to: str) -> bool:
        """Let the target that has an object rename it.

        AIStore cannot rename in buckets of other providers, nor in erasure-coded buckets. It sends the copy to
        another target by a URL that holds the new name unencoded, so names with a character of `_LOST_IN_PATHS` are
        refused.
        """
        check_object_name(to, url=self.url(to))
        if not _LOST_IN_PATHS.isdisjoint(to):
            return False
        json = {"action": "rename-obj", "name": to}
        url, shown = self._object_url(name), self.url(name)
        return self._control.call("POST", url, shown=shown, json=json, accept=_CANNOT_RENAME).ok

    def delete(self, name: str) -> None:
        self._control.call("DELETE", self._object_url(name), shown=self.url(name), accept=_ABSENT)

    def create(self) -> None:
        json = {"action": "create-bck"}
        self._control.call("POST", self._bucket_url(), shown=self.url(""), json=json, accept=_EXISTS)

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _bucket_url(self) -> str:
        return f"{self._endpoint}/v1/buckets/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def _object_url(self, name: str, query: Mapping[str, str] | None = None) -> str:
        check_object_name(name, url=self.url(name))
        encoded = urlencode({"provider": self._provider, **(query or {})}, quote_via=quote)
        return f"{self._endpoint}/v1/objects/{quote(self._bucket)}/{quote(name)}?{encoded}"
