"""http:// and https:// — any server that answers GET, with ranges if it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Read
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores._answers import as_sent, identity_of, is_address, length_of
from ais_tar2tf.stores._base import Interrupt, ObjectInfo, Pieces
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import Answer, HttpBody, HttpPool, body_of, info_of, range_header
from ais_tar2tf.stores._multipart import MOST_FRAME, pieces_of, ranges_header
from ais_tar2tf.stores._tls import warn_if_unverified

__all__ = ["HttpStore"]

_MOST_RANGES = 32  # in one request: with twenty digits each, still a short header


class HttpStore:
    """One origin, `http://host:port`; names are paths with their query, as they stand in URLs: `%20` is a space."""

    def __init__(self, origin: str, read: Read) -> None:
        if not is_address(origin):
            scheme, _, host = origin.partition("://")
            raise StoreError(
                "this is no host[:port]; names and passwords in URLs are not sent",
                url=f"{scheme}://{host.rpartition('@')[2]}",
            )
        self._origin = origin.rstrip("/")
        warn_if_unverified(read.tls, self._origin)
        self._pool = HttpPool(read.timeouts, read.tls)
        self._control = ControlPlane(self._origin, None, read.timeouts, read.retry, tls=read.tls)
        self._many = True  # ranges in one request; until the server shows that it does otherwise

    def __repr__(self) -> str:
        return f"HttpStore({self._origin})"

    def url(self, name: str) -> str:
        return shown_url(self.whole_url(name))

    def whole_url(self, name: str) -> str:
        """Return the URL of an object with its query, which may let its bearer in."""
        return f"{self._origin}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        body = body_of(self._ask(name, range_header(start, stop), interrupt), name, start, stop)
        return body if body is not None else self.open(name, interrupt=interrupt)

    across_objects: bool = False

    @property
    def ranges_at_once(self) -> int:
        return _MOST_RANGES if self._many else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> Pieces | None:
        """As multipart/byteranges, which many servers know."""
        (name, *_), ranges = wanted[0], [(start, stop) for _, start, stop in wanted]
        answer = self._ask(name, ranges_header(ranges), interrupt)
        headers, length = answer.response.headers, answer.response.length
        most = sum(stop - start + MOST_FRAME for start, stop in ranges) + MOST_FRAME
        if (
            answer.status != 206
            or headers.get_content_type() != "multipart/byteranges"
            or not 0 < (length or 0) < most
        ):
            self._many = self._many and answer.status >= 500  # that passes
            answer.drain()
            return None
        assert length is not None
        data = memoryview(bytearray(length))
        body = HttpBody(answer, ObjectInfo(name, None, identity_of(headers, None)), 0, length)
        try:
            have = 0
            while have < length:
                have += body.readinto(data[have:])
        finally:
            body.close()
        found = pieces_of(data.toreadonly(), ranges)
        self._many = found is not None
        return None if found is None else Pieces(found[0], identity_of(headers, found[1]))

    def _ask(self, name: str, headers: Mapping[str, str], interrupt: Interrupt | None) -> Answer:
        return self._pool.ask(self._address(name), headers, shown=self.url(name), interrupt=interrupt)

    def ask(self, name: str, interrupt: Interrupt | None = None) -> ObjectInfo:
        url, shown = self._address(name), self.url(name)
        return info_of(self._pool.ask(url, {}, shown=shown, method="HEAD", interrupt=interrupt), name)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._address(name), shown=self.url(name))
        size = length_of(answer.headers)
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StoreError(
            "plain HTTP has no listing; name the shards, as in train-{000..146}.tar", url=self.url(prefix)
        )

    def put(self, name: str, data: bytes | Path) -> None:
        del data
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def move(self, name: str, to: str) -> bool:
        del to
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def delete(self, name: str) -> None:
        raise StoreError("plain HTTP is read only here", url=self.url(name))

    def create(self) -> None:
        raise StoreError("plain HTTP has no buckets", url=self._origin)

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _address(self, name: str) -> str:
        return f"{self._origin}/{as_sent(name)}"
