"""ais:// — AIStore's native API: the proxy redirects to a target, and the redirect is itself the grant."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode

from ais_tar2tf.errors import AccessDenied, StoreError, TransportError
from ais_tar2tf.names import check_object_name
from ais_tar2tf.options import KIB, Read
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores._answers import followed, identity_of, is_endpoint, length_of, said_in
from ais_tar2tf.stores._base import Identity, Interrupt, ObjectInfo, Pieces
from ais_tar2tf.stores._batch import unpacked
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of, info_of, range_header
from ais_tar2tf.stores._listing import MOST_EMPTY, below
from ais_tar2tf.stores._tls import ais_tls, warn_if_unverified
from ais_tar2tf.stores._token import Token, TokenSource
from ais_tar2tf.structure import Fail, Mismatch, check, fields, listed, maybe, text

if TYPE_CHECKING:
    import requests

__all__ = ["AisStore", "Inside", "bucket_names", "endpoint_url"]

_T = TypeVar("_T")
_SIZE = re.compile("[0-9]{1,18}")
_UNAUTHORIZED = 401
_SLIPS = (
    (re.compile(r"^http://(https?):/*"), r"\1://"),  # `http:/host`, once it has got a scheme
    (re.compile(r"\s+"), ":"),  # `host 51080`
    (re.compile(r"/v1/(objects|buckets|cluster|daemon|health)\b.*"), ""),  # the URL of a call
)
"""What is written amiss in endpoints, and what stands there instead."""

_THERE_ALREADY = frozenset({409})
_GONE_ALREADY = frozenset({404})
_UNKNOWN = frozenset({501})  # to ask again would help nobody
_NOT_IN_PATHS = frozenset("%#?")
_CANNOT_RENAME = frozenset({400, 403, 405, 500, 501})  # its reasons have no status of their own
_INSIDE_SHARDS = "8"  # a flag of listings: also what is in archives
_MOST_RANGES = 128  # in one GetBatch
_FRAME_BYTES = 16 * KIB  # at most, around each: headers, a long name, padding; and what an error says
_BEFORE_SLASH = "".join(map(chr, range(ord(" "), ord("/"))))  # what a name may go on with, and come before a folder
_MOST_LISTED = 10_000  # names on a page: the most that AIStore gives


class Inside(NamedTuple):
    """What is in a shard, as its cluster tells it."""

    shard: ObjectInfo
    members: list[tuple[str, int]]  # name and size, by name, whatever their order in the shard
    listed: int  # bytes of the answer


def endpoint_url(given: str | None) -> str:
    """The endpoint: what was given, else AIS_ENDPOINT; without a scheme it is http. Its API's `/v1` may follow."""
    endpoint = (given or os.environ.get("AIS_ENDPOINT", "")).strip()
    if not endpoint:
        raise StoreError(
            "no endpoint: give proxy_url= (or endpoint=), or set AIS_ENDPOINT to something like http://host:51080",
            url="ais://",
        )
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    meant = endpoint = endpoint.rstrip("/").removesuffix("/v1")
    for slip, right in _SLIPS:
        meant = slip.sub(right, meant)
    if meant != endpoint or not is_endpoint(endpoint):
        is_clear = meant != endpoint and is_endpoint(meant)
        advice = f"did you mean {meant}?" if is_clear else "one looks like http://host:51080, without a password"
        host = endpoint.rpartition("@")[2].rpartition("://")[2].partition("?")[0]
        raise StoreError(f"this is no endpoint; {advice}", url=f"{endpoint.partition('://')[0]}://{host}")
    return endpoint


def bucket_names(endpoint: str | None, token: TokenSource | None = None, read: Read | None = None) -> list[str]:
    """The URLs of a cluster's buckets, in order; those of other stores that it knows, too."""
    read, shown = read or Read(), "ais://"
    url = endpoint_url(endpoint)
    control = ControlPlane(url, Token(token, shown), read.timeouts, read.retry, tls=ais_tls(read.tls))
    try:
        answer = control.call("GET", f"{url}/v1/buckets", shown=shown, json={"action": "list"})
        found = said_in(answer.content, "list of buckets", shown) or []  # null when there are none
        named = check(found, _BUCKETS, where=shown, fail=_no_answer(shown, "the answer names no buckets"))
        return sorted(f"{bucket['provider']}://{bucket['name']}" for bucket in named)
    finally:
        control.close()


def _no_bucket(given: str, provider: str) -> StoreError:
    """Return the error for text that names no bucket, with what was meant where that can be told."""
    scheme, _, rest = given.rpartition("://")
    name, _, below = rest.partition("/")
    advice = "; a URL like this is read by t2t.open"
    if scheme in ("http", "https"):
        advice = "; the bucket comes first, and then the endpoint"
    elif scheme in ("", provider):
        advice = f"; did you mean {name!r}" if name not in ("", ".", "..") else ""
        advice += f", and {below!r} in the template?" if advice and below else "?" if advice else ""
    shown = given if scheme else f"{provider}://{given}"
    return StoreError(f"a bucket's name is not empty and has no slash{advice}", url=shown_url(shown))


class AisStore:
    """One bucket of an AIStore cluster; with `etl`, what an ETL of that name makes of its objects."""

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
        if bucket in ("", ".", "..") or "/" in bucket:
            raise _no_bucket(bucket, provider)
        self._bucket = bucket
        self._provider = provider
        self._etl = {"etl_name": etl} if etl else {}  # what objects are passed through when they are read
        self._endpoint = endpoint_url(endpoint)
        self._token = Token(token, f"{provider}://{bucket}")
        self._read = read
        tls = ais_tls(read.tls)
        warn_if_unverified(tls, self._endpoint)
        self._pool = HttpPool(read.timeouts, tls)
        self._batches = True  # until the server says otherwise
        self._control = ControlPlane(self._endpoint, self._token, read.timeouts, read.retry, tls=tls)

    def __repr__(self) -> str:
        return f"AisStore({self._provider}://{self._bucket} at {self._endpoint})"

    def url(self, name: str) -> str:
        return f"{self._provider}://{self._bucket}/{name}"

    def open(
        self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None
    ) -> HttpBody:
        if not self._etl:
            return self._allowed(lambda token: self._open(name, start, stop, interrupt, token))
        # An output has no ranges. A target names no bucket to a transformer over ws, so the shard's URL goes along.
        query = {**self._etl, "etl_args": json.dumps({"shard": self.url(name)})}
        return self._allowed(lambda token: self._open(name, 0, None, interrupt, token, query))

    def open_members(self, name: str, pattern: str, *, interrupt: Interrupt | None = None) -> HttpBody:
        """A tar of the members whose names match, in the shard's order, from its start: the target reads the shard.

        The answer states neither a length nor a checksum nor a version.
        """
        query = {"archregx": pattern, "archmode": "regexp"}
        return self._allowed(lambda token: self._open(name, 0, None, interrupt, token, query))

    def _allowed(self, ask: Callable[[str | None], _T]) -> _T:
        """What `ask` gives; once more with another token where the first one was refused."""
        token = self._token.value()
        try:
            return ask(token)
        except AccessDenied as error:
            if error.status != _UNAUTHORIZED or not self._token.renew(token):
                raise
        return ask(self._token.value())

    def _open(
        self,
        name: str,
        start: int,
        stop: int | None,
        interrupt: Interrupt | None,
        token: str | None,
        query: Mapping[str, str] | None = None,
    ) -> HttpBody:
        # A redirect's query is the grant: the token stays here.
        url, wanted, shown = self._object(name, query), range_header(start, stop), self.url(name)
        answer = self._pool.ask(url, wanted, shown=shown, first=_bearer(token), interrupt=interrupt)
        body = body_of(answer, name, start, stop, self._token.secrets())
        return body if body is not None else self.open(name, interrupt=interrupt)

    def ask(self, name: str, interrupt: Interrupt | None = None) -> ObjectInfo:
        def once(token: str | None) -> ObjectInfo:
            answer = self._pool.ask(
                self._object(name),
                {},
                shown=self.url(name),
                first=_bearer(token),
                method="HEAD",
                interrupt=interrupt,
            )
            return info_of(answer, name, self._token.secrets())

        return self._allowed(once)

    def head(self, name: str) -> ObjectInfo:
        answer = self._control.call("HEAD", self._object(name), shown=self.url(name))
        size = length_of(answer.headers)
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return below(prefix, self._entries(prefix), self.url(prefix), self._read.limits)

    def _entries(self, prefix: str) -> Iterator[ObjectInfo]:
        """One page at a time; the last page may be empty.

        AIStore (1.5) goes through folders in the order of their entries and goes on behind a name: between two pages
        it loses names where `a/1` comes before `a-1` in the one order and behind it in the other. Where the prefix is
        also a folder, it looks nowhere else, so it is asked for whole folders.
        """
        token, last, folder, empty = "", "", prefix[: prefix.rfind("/") + 1], 0
        looked: set[str] = set()
        while True:
            found, following = self._page(folder, token, self.url(prefix))
            empty = 0 if found else empty + 1
            if following and (following == token or empty > MOST_EMPTY):
                what = "its continuation token repeats" if following == token else f"{empty:,} pages are empty"
                raise StoreError(f"the listing does not go on: {what}; name the shards", url=self.url(prefix))
            if found and following:
                self._look_beside(found[-1].name, folder, prefix, looked)
            for info in found:
                if (token or following) and _is_lossy(last, info.name):
                    raise _lossy(last, info.name, self.url(prefix))
                last = info.name
                yield info
            if not following:
                return
            token = following

    def _look_beside(self, name: str, folder: str, prefix: str, looked: set[str]) -> None:
        """Whether there is something that a listing loses behind this page, where it ends within a folder: `a-1`
        beside `a/`. `looked`: folders beside which there is nothing.
        """
        at = name.find("/", len(folder))
        while at >= 0:
            if name[:at] not in looked:
                looked.add(name[:at])
                for beside in (name[:at] + character for character in _BEFORE_SLASH):
                    if not (beside.startswith(prefix) or prefix.startswith(beside)):
                        continue
                    for info in self._page(beside, "", self.url(prefix))[0]:
                        if info.name.startswith(beside):  # a prefix that it does not like gives whole folders
                            raise _lossy(info.name, name, self.url(prefix))
            at = name.find("/", at + 1)

    def inside(self, name: str) -> Inside | None:
        """The members of a shard, by names and sizes as the cluster lists them; None where that is not all of them.

        AIStore (1.5) loses the members of a shard that do not fit on the page on which it begins.
        """
        value = {"prefix": name, "pagesize": _MOST_LISTED, "props": "name,size,version", "flags": _INSIDE_SHARDS}
        shown = self.url(name)
        answer = self._control.call("GET", self._bucket_url(), shown=shown, json={"action": "list", "value": value})
        entries, following = _read_page(answer, shown)
        shard = next((info for info in entries if info.name == name), None)
        if shard is None or following:
            return None
        below = f"{name}/"
        members = [(info.name.removeprefix(below), info.size or 0) for info in entries if info.name.startswith(below)]
        return Inside(shard, members, len(answer.content))

    def batch(self, ranges: Sequence[tuple[str, int, int]]) -> bytes:
        """A tar of ranges (object, start, length) of this bucket's objects, in this order; `__404__/…` where nothing
        is. The cluster collects them from its targets; the answer is held whole.
        """
        entries = [{"objname": name, "start": start, "length": length} for name, start, length in ranges]
        asked = {"in": entries, "mime": ".tar", "coer": True, "strm": True}
        most = _most_bytes(asked)
        answer = self._control.call(
            "GET", self._batch_url(), shown=self.url(""), json=asked, accept=_UNKNOWN, most=most
        )
        if not answer.ok:
            raise StoreError("GetBatch is not known to this server", url=self.url(""))
        return answer.content

    across_objects: bool = True

    @property
    def ranges_at_once(self) -> int:
        return _MOST_RANGES if self._batches and not self._etl else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> Pieces | None:
        """By GetBatch. Its answer says nothing of versions, and of what went wrong little: then one asks singly.

        AIStore 1.5 writes names and sizes of ranges into it, and no header or attribute of theirs says more. Which
        content they are of, `fetch` learns from one in 64 of a shard's ranges, which it asks for by itself: a record
        that is wanted anyway, for 0.8 ms where the batch takes 1.1 for each of 128, and no difference to be measured
        in an epoch. A HEAD takes 3.5 ms, and records in random order are of nearly as many shards; a listing takes
        6 ms of 40 shards and 46 of 2,000, and proves no more than the state before the batch or behind it. (On two
        cores with a cluster of their own.)
        """
        items = [{"objname": name, "start": start, "length": stop - start} for name, start, stop in wanted]
        # Here a range from 0 on is a range only if its length is said, and it always is.
        query = {"in": items, "mime": ".tar", "coer": True, "strm": True, "onob": True}
        try:
            answer = self._allowed(lambda token: self._collected_once(query, interrupt, token))
        except TransportError:
            return None
        except StoreError:
            self._batches = False  # a server that does not know it, or does not let us
            return None
        found = unpacked(answer, wanted)
        return None if found is None else Pieces(list(map(memoryview, found)), Identity())

    def _collected_once(self, asked: dict[str, Any], interrupt: Interrupt | None, token: str | None) -> bytes:
        """What GetBatch answers, by the way that bodies come."""
        answer = self._pool.ask(
            self._batch_url(),
            {"Content-Type": "application/json"},
            shown=self.url(""),
            first=_bearer(token),
            body=json.dumps(asked).encode(),
            interrupt=interrupt,
        )
        if answer.status != 200:
            raise answer.error(self._token.secrets())
        return answer.whole(_most_bytes(asked))

    def _batch_url(self) -> str:
        return f"{self._endpoint}/v1/ml/moss/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def described(self) -> dict[str, str]:
        """The bucket, as jobs name it."""
        return {"name": self._bucket, "provider": self._provider}

    def put(self, name: str, data: bytes | Path) -> None:
        """An empty PUT for the target's address, then the body there: a big body does not survive the proxy."""
        url, shown = self._object(name), self.url(name)
        answer = self._control.call("PUT", url, shown=shown, data=b"", follow=False)
        if answer.is_redirect:
            url = followed(url, answer.headers["Location"], shown)
        self._control.call("PUT", url, shown=shown, data=data)

    def move(self, name: str, to: str) -> bool:
        """By the target that has it. AIStore refuses where a bucket is of another store, or erasure-coded.

        It sends the copy to another target by a URL in which the name stands as it is, so that it may get lost there.
        """
        check_object_name(to, url=self.url(to))
        if not _NOT_IN_PATHS.isdisjoint(to):
            return False
        asked = {"action": "rename-obj", "name": to}
        answer = self._control.call(
            "POST", self._object(name), shown=self.url(name), json=asked, accept=_CANNOT_RENAME
        )
        return answer.ok

    def delete(self, name: str) -> None:
        self._control.call("DELETE", self._object(name), shown=self.url(name), accept=_GONE_ALREADY)

    def create(self) -> None:
        self._control.call(
            "POST", self._bucket_url(), shown=self.url(""), json={"action": "create-bck"}, accept=_THERE_ALREADY
        )

    def close(self) -> None:
        self._pool.close()
        self._control.close()

    def _page(self, prefix: str, token: str, shown: str) -> tuple[list[ObjectInfo], str]:
        """The objects of one page, and the token of the next one."""
        value = {
            "prefix": prefix,
            "pagesize": self._read.limits.listing_page,
            "props": "name,size,version",
            "continuation_token": token,
        }
        answer = self._control.call("GET", self._bucket_url(), shown=shown, json={"action": "list", "value": value})
        return _read_page(answer, shown)

    def _bucket_url(self) -> str:
        return f"{self._endpoint}/v1/buckets/{quote(self._bucket)}?{urlencode({'provider': self._provider})}"

    def _object(self, name: str, query: Mapping[str, str] | None = None) -> str:
        check_object_name(name, url=self.url(name))
        asked = urlencode({"provider": self._provider, **(query or {})}, quote_via=quote)
        return f"{self._endpoint}/v1/objects/{quote(self._bucket)}/{quote(name)}?{asked}"


def _bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _most_bytes(batch: dict[str, Any]) -> int:
    """Of a GetBatch's answer."""
    return sum(item["length"] + _FRAME_BYTES for item in batch["in"]) + _FRAME_BYTES


def _lossy(name: str, other: str, shown: str) -> StoreError:
    return StoreError(
        f"AIStore may leave out names between the pages of a listing that has {name!r} and {other!r}; name the "
        "shards, or list one folder (pages: Limits.listing_page)",
        url=shown,
    )


def _is_lossy(name: str, following: str) -> bool:
    """Whether two neighbours in a listing are `a-…` (or another character below the slash) and `a/…`.

    >>> _is_lossy("x/a-1.tar", "x/a/1.tar"), _is_lossy("x/a/1.tar", "x/b.tar"), _is_lossy("x/a-1.tar", "x/b/1.tar")
    (True, False, False)
    """
    differ = ((ours, theirs) for ours, theirs in zip(name, following, strict=False) if ours != theirs)
    ours, theirs = next(differ, ("", ""))
    return theirs == "/" and ours < theirs


def _read_page(answer: requests.Response, shown: str) -> tuple[list[ObjectInfo], str]:
    """The entries of a listing's page, and the token of the next one."""
    said = said_in(answer.content, "listing", shown)
    page = check(said, _PAGE, where=shown, fail=_no_answer(shown, "the answer is no listing"))
    return page.get("entries") or [], page.get("continuation_token") or ""


def _no_answer(shown: str, what: str) -> Fail:
    return lambda why: StoreError(f"{what}; is the endpoint an AIStore proxy? ({why})", url=shown)


def _described(value: Any) -> ObjectInfo:
    """An entry of a listing; what is empty or zero is left out of it."""
    if not isinstance(value, dict):
        raise Mismatch("an object is expected", value)
    entry = cast("dict[str, Any]", value)
    name, version, written = text(entry.get("name")), text(entry.get("version", "")), str(entry.get("size", "0"))
    if _SIZE.fullmatch(written) is None:
        raise Mismatch("a size is expected", written)
    size = int(written)
    return ObjectInfo(name, size, Identity(version=version, size=size))


_BUCKETS = listed(fields({"provider": text, "name": text}))
_PAGE = fields({}, {"entries": maybe(listed(_described)), "continuation_token": maybe(text)})
