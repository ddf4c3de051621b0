"""The store of http:// and https:// URLs: any web server that answers GET, preferably also GET for ranges.

This store reads only. It must not list or write objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Read
from ais_tar2tf.stores.base import Interrupt, ObjectInfo, Store
from ais_tar2tf.stores.capabilities import MultiRange, MultiRangeAnswer
from ais_tar2tf.stores.multipart import MAX_PART_HEAD, pieces_of, ranges_header
from ais_tar2tf.stores.transport.answers import as_sent, identity_of, info_in, is_address
from ais_tar2tf.stores.transport.bodies import Answer, HttpBody, body_of, info_of, range_header
from ais_tar2tf.stores.transport.control import ControlPlane
from ais_tar2tf.stores.transport.pool import HttpPool

__all__ = ["HttpStore"]

_MAX_RANGES = 32  # in one request, so that its header stays short even if each number has twenty digits


class HttpStore(Store, MultiRange):
    """The objects of one origin, `http://host:port`.

    The name of an object is the path and the query of its URL, still percent-encoded: `%20` stands for a space.
    """

    def __init__(self, origin: str, read: Read) -> None:
        if not is_address(origin):
            scheme, _, host = origin.partition("://")
            raise StoreError(
                "this is no host[:port]; names and passwords in URLs are not sent",
                url=f"{scheme}://{host.rpartition('@')[2]}",
            )
        self._origin = origin.rstrip("/")
        self._pool = HttpPool(read.timeouts, read.tls)
        self._control = ControlPlane(self._origin, None, read.timeouts, read.retry, tls=read.tls)
        # False once the server has answered a request for several ranges without multipart/byteranges.
        self._has_multipart = True

    def __repr__(self) -> str:
        return f"HttpStore({self._origin})"

    def url(self, name: str) -> str:
        return shown_url(self.full_url(name))

    def full_url(self, name: str) -> str:
        return f"{self._origin}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        body = body_of(self._request(name, range_header(start, stop), interrupt), name, start, stop)
        # `body_of` returns None if the server refused a range that begins at 0. Servers do this for an empty object.
        # The object is then requested without a range.
        return body if body is not None else self.open(name, interrupt=interrupt)

    across_objects: bool = False

    @property
    def ranges_at_once(self) -> int:
        return _MAX_RANGES if self._has_multipart else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer | None:
        """Read several ranges of one object by one request.

        Return None if the answer is not multipart/byteranges with exactly these ranges.
        """
        (name, *_), ranges = wanted[0], [(start, stop) for _, start, stop in wanted]
        answer = self._request(name, ranges_header(ranges), interrupt)
        headers, length = answer.response.headers, answer.response.length
        max_bytes = sum(stop - start + MAX_PART_HEAD for start, stop in ranges) + MAX_PART_HEAD
        if (
            answer.status != 206
            or headers.get_content_type() != "multipart/byteranges"
            or not 0 < (length or 0) < max_bytes
        ):
            self._has_multipart = self._has_multipart and answer.status >= 500  # a 5xx may be temporary
            answer.drain()
            return None
        assert length is not None
        data = memoryview(bytearray(length))
        body = HttpBody(answer, ObjectInfo(name, None, identity_of(headers, None)), 0, length)
        try:
            received = 0
            while received < length:
                received += body.readinto(data[received:])
        finally:
            body.close()
        found = pieces_of(data.toreadonly(), ranges)
        self._has_multipart = found is not None
        return None if found is None else MultiRangeAnswer(found[0], identity_of(headers, found[1]))

    def _request(
        self, name: str, headers: Mapping[str, str], interrupt: Interrupt | None, method: str = "GET"
    ) -> Answer:
        url, shown = self._address(name), self.url(name)
        return self._pool.request(url, headers, shown=shown, method=method, interrupt=interrupt)

    def head_once(self, name: str, *, interrupt: Interrupt | None = None) -> ObjectInfo:
        return info_of(self._request(name, {}, interrupt, "HEAD"), name)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._address(name), shown=self.url(name))
        return info_in(answer.headers, name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StoreError(
            "plain HTTP has no listing; name the shards, as in train-{000..146}.tar", url=self.url(prefix)
        )

    def put(self, name: str, data: bytes | Path) -> None:
        del data
        raise self._read_only(name)

    def move(self, name: str, to: str) -> bool:
        del to
        raise self._read_only(name)

    def delete(self, name: str) -> None:
        raise self._read_only(name)

    def _read_only(self, name: str) -> StoreError:
        return StoreError("plain HTTP is read only here", url=self.url(name))

    def create(self) -> None:
        raise StoreError("plain HTTP has no buckets", url=self._origin)

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _address(self, name: str) -> str:
        return f"{self._origin}/{as_sent(name)}"
