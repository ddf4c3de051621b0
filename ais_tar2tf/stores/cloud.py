"""s3://, gs:// and az:// — obstore signs and lists; bodies come through http.client as everywhere else.

Public buckets of S3 need no signature. Where obstore cannot sign elsewhere, bodies are its own streams.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, Tar2TFError, TransportError
from ais_tar2tf.names import check_object_name
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.retries import repeat
from ais_tar2tf.stores._answers import followed, identity_of, length_of
from ais_tar2tf.stores._base import Body, Identity, Interrupt, ObjectInfo
from ais_tar2tf.stores._cloud_body import EmptyBody, StreamBody
from ais_tar2tf.stores._contact import CONTACTS, Endpoint
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpPool, body_of, info_of, range_header
from ais_tar2tf.stores._listing import below
from ais_tar2tf.stores._obstore import (
    DEFAULT_REGION,
    endpoint_of,
    error_of,
    is_public,
    is_set,
    make,
    obstore,
    status_of,
)
from ais_tar2tf.stores._tls import aws_tls, warn_if_unverified
from ais_tar2tf.stores._unanswered import check_first_answer, note_failure
from ais_tar2tf.waits import Wait

if TYPE_CHECKING:
    from ais_tar2tf.stores._steps import Steps

__all__ = ["CloudStore"]

_T = TypeVar("_T")
_SIGNED_FOR = timedelta(minutes=15)  # used at once; clocks differ by minutes at most
_IN_PARTS = 64 * MIB  # a larger body is sent in parts, each tried again by itself; above 5 GiB S3 takes no other
_PART = 8 * MIB
_MOST_PARTS = 9_000  # S3 takes 10,000
_PARTS_AT_ONCE = 2  # held in memory
_NAMES_AT_ONCE = 1_000  # a page of S3
_ASK_FIRST = 8 * MIB  # a larger body does not survive AIStore's redirect: its target is asked for before
_THERE_ALREADY = frozenset({409})
_GONE_ALREADY = frozenset({404})


class CloudStore:
    """One bucket or container. The signature stands in the URL, which is therefore shown nowhere."""

    def __init__(self, scheme: str, bucket: str, read: Read, *, endpoint: str | None = None) -> None:
        if bucket in ("", ".", ".."):
            raise StoreError("a bucket's name is not empty", url=f"{scheme}://")
        self._scheme = scheme
        self._bucket = bucket
        self._read = read
        self._tls = aws_tls(read.tls) if scheme == "s3" else read.tls
        self._endpoint = endpoint_of(scheme, endpoint)
        warn_if_unverified(self._tls, self._endpoint or f"{scheme}://{bucket}")
        self._patient = False  # whether `_made` tries again by itself
        self._made, self._region = self._make()
        self._signs = not is_public(scheme, self._endpoint)
        self._pool = HttpPool(read.timeouts, self._tls)
        self._control = ControlPlane(self._endpoint or "", None, read.timeouts, read.retry, tls=self._tls)

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
            return self._open(address, name, start, stop, interrupt)
        except ObjectChanged as error:
            # MinIO's 416 does not say how long the object is, which may be just where this is to go on.
            info = self.ask(name, interrupt) if start else None
            if info is None or info.size != start:
                raise
            del error
            return EmptyBody(info, start)

    def _open(self, address: str, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        wanted = range_header(start, stop)
        body = body_of(self._pool.ask(address, wanted, shown=self.url(name), interrupt=interrupt), name, start, stop)
        return body if body is not None else self.open(name, interrupt=interrupt)

    def ask(self, name: str, interrupt: Interrupt | None = None) -> ObjectInfo:
        address = self._signed("HEAD", name)
        if address is None:
            return self.head(name)
        answer = self._pool.ask(address, {}, shown=self.url(name), method="HEAD", interrupt=interrupt)
        return info_of(answer, name)

    def _stream(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        shown = self.url(name)
        asked: Any = {"range": {"offset": start} if stop is None else (start, stop)} if start or stop else {}
        try:
            result = self._ask_once(lambda store: obstore().get(store, name, options=asked), name)
        except TransportError:
            raise
        except StoreError:
            info = self.head(name)
            if info.size is None or start < info.size:
                raise
            return EmptyBody(info, start)
        return StreamBody(result, _info(name, result.meta), shown, interrupt, self._read.timeouts)

    def head(self, name: str) -> ObjectInfo:
        address = self._signed("HEAD", name)
        if address is None:
            return _info(name, self._ask_obstore(lambda store: obstore().head(store, name), name))
        answer = self._control.call("HEAD", address, shown=self.url(name))
        size = length_of(answer.headers)
        return ObjectInfo(name, size, identity_of(answer.headers, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return below(prefix, self._entries(prefix), self.url(prefix), self._read.limits)

    def _entries(self, prefix: str) -> Iterator[ObjectInfo]:
        """obstore's prefixes end at slashes: what comes before ours in its folder is skipped by the offset.

        It follows pages without names for as long as a server sends them, so what is waited for is the next names.
        """
        if self._tls.certificate:
            raise StoreError(
                "obstore shows no client certificate, so it cannot list here; name the shards", url=self.url(prefix)
            )
        from ais_tar2tf.stores._steps import Steps  # asyncio takes as long to import as all of this package

        folder, seconds = prefix.rpartition("/")[0], self._read.timeouts.listing
        at_once = min(_NAMES_AT_ONCE, self._read.limits.listing_page)

        def begin(store: Any) -> tuple[Steps[Any], Any]:
            steps = Steps(obstore().list(store, folder or None, offset=_just_before(prefix), chunk_size=at_once))
            try:
                return steps, self._next_page(steps, seconds, prefix)
            except BaseException:
                steps.close()
                raise

        steps, page = self._ask_obstore(begin, prefix)
        try:
            while page:
                for entry in page:
                    yield _info(entry["path"], entry)
                page = self._ask_obstore(lambda _: self._next_page(steps, seconds, prefix), prefix)
        finally:
            steps.close()

    def _next_page(self, steps: Steps[Any], seconds: float, prefix: str) -> Any:
        try:
            return steps.next(seconds)
        except TimeoutError:
            raise StoreError(
                f"the listing does not go on: fewer than {_NAMES_AT_ONCE:,} names came within {seconds:g} s, "
                "Timeouts.listing; name the shards",
                url=self.url(prefix),
            ) from None

    def put(self, name: str, data: bytes | Path) -> None:
        address, shown = self._signed("PUT", name), self.url(name)
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        redirected = address is not None and size >= _ASK_FIRST and self._redirects(name)
        if address is None or (size >= _IN_PARTS and not redirected):
            self._put_in_parts(name, data, size)
            return
        if redirected:
            answer = self._control.call("PUT", address, shown=shown, data=b"", follow=False)
            if answer.is_redirect:
                address = followed(address, answer.headers["Location"], shown)
        self._control.call("PUT", address, shown=shown, data=data, headers=self._put_headers())

    def _put_in_parts(self, name: str, data: bytes | Path, size: int) -> None:
        part = max(_PART, size // _MOST_PARTS)
        self._ask_obstore(
            lambda store: obstore().put(store, name, data, chunk_size=part, max_concurrency=_PARTS_AT_ONCE),
            name,
            silent=True,
        )

    def move(self, name: str, to: str) -> bool:
        check_object_name(name, url=self.url(name))
        check_object_name(to, url=self.url(to))
        if self._tls.certificate:
            return False  # obstore shows none
        if name + to != quote(name + to) and self._redirects(name):
            return False  # AIStore's /s3 escapes the source's name once too often, and the other's not at all
        self._ask_obstore(lambda store: obstore().copy(store, name, to), name)
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        address, shown = self._signed("DELETE", name), self.url(name)
        if address is not None:
            self._control.call("DELETE", address, shown=shown, accept=_GONE_ALREADY)
            return
        with contextlib.suppress(ShardNotFound):  # gone already
            self._ask_obstore(lambda store: obstore().delete(store, name), name)

    def _put_headers(self) -> dict[str, str]:
        return {"x-ms-blob-type": "BlockBlob"} if self._scheme == "az" else {}

    def _redirects(self, name: str) -> bool:
        """Whether this is AIStore's /s3, whose proxy sends everybody on."""
        address = self._signed("HEAD", name) or ""
        answer = self._control.call("HEAD", address, shown=self.url(name), accept=frozenset({404}), follow=False)
        return answer.is_redirect

    def create(self) -> None:
        shown = self.url("")
        address = self._signed("PUT", "") if self._scheme == "s3" else None
        if address is None:
            self._check_bucket()
            return
        place = f"<LocationConstraint>{escape(self._region)}</LocationConstraint>"
        body = f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>"
        data = b"" if self._region == DEFAULT_REGION else body.encode()
        self._control.call("PUT", address, shown=shown, data=data, accept=_THERE_ALREADY)

    def _check_bucket(self) -> None:
        try:
            next(self.list(""), None)
        except ShardNotFound:
            raise ShardNotFound(
                "there is no such bucket; buckets are made with the provider's own tools", url=self.url("")
            ) from None

    def _ask_obstore(self, ask: Callable[[Any], _T], name: str, *, silent: bool = False) -> _T:
        """Return what `ask` gets from obstore's store, which tries again by itself once its endpoint has answered."""
        with Wait(self.url(name), silent=silent) as wait:
            return repeat(
                lambda: self._ask_once(ask, name),
                self._read.retry,
                pause=time.sleep,
                draw=random.random,
                failed=wait.because,
            )

    def _ask_once(self, ask: Callable[[Any], _T], name: str) -> _T:
        began, patient, shown = CONTACTS.now(), CONTACTS.has_answered(self._contact), self.url(name)
        try:
            result = ask(self._store(patient=patient))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # obstore's errors share no root with its Python ones
            failure, status = error_of(error, shown, self._endpoint), status_of(error)
        else:
            CONTACTS.note_answer(self._contact)
            return result
        if status is not None and self._endpoint is not None:
            check_first_answer(status, self._endpoint, shown, self._read.timeouts)
        elif isinstance(failure, TransportError):
            failure = self._judged(failure, began)
        if isinstance(failure, TransportError):
            failure.final = failure.final or patient  # obstore itself has tried again
        raise failure from failure.__cause__

    def _judged(self, failure: TransportError, began: float) -> TransportError:
        """Return the error for a failure of obstore's by what its endpoint does, which obstore hardly tells.

        An endpoint that has never answered is sent a request of our own, unless it kept silent.
        """
        if failure.silence is None:
            CONTACTS.note_answer(self._contact)
        if self._endpoint is None or failure.silence is None or CONTACTS.has_answered(self._contact):
            CONTACTS.note_failure(failure, self._contact, began)
            return failure
        if isinstance(failure.__cause__, TimeoutError):
            return note_failure(failure, self._endpoint, began, self._read.timeouts)
        try:
            self._pool.ask(f"{self._endpoint}/", {}, shown=failure.url, method="HEAD").drain()
        except TransportError as error:
            return error
        failure.silence = None
        return failure

    @property
    def _contact(self) -> Endpoint:
        return urlsplit(self._endpoint)[:2] if self._endpoint else (self._scheme, self._bucket)

    def _make(self) -> tuple[Any, str]:
        try:
            return make(self._scheme, self._bucket, self._endpoint, self._read, self._tls, retries=self._patient)
        except Tar2TFError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever is missing in the environment
            raise error_of(error, self.url("")) from None

    def _store(self, *, patient: bool) -> Any:
        """Return obstore's own store; it is made again after `close`."""
        if self._made is None or patient != self._patient:
            self._patient = patient
            self._made, _ = self._make()
        return self._made

    def close(self) -> None:
        self._made = None  # it keeps connections as long as it lives
        self._pool.close()
        self._control.close()

    def _signed(self, method: str, name: str) -> str | None:
        """A URL that may do just this, for some minutes or for ever; None where obstore has no key to sign with."""
        check_object_name(name, url=self.url(name))
        if not self._signs:
            return self._unsigned(name)
        try:
            patient = CONTACTS.has_answered(self._contact)
            return obstore().sign(self._store(patient=patient), method, name, _SIGNED_FOR)
        except Exception as error:  # noqa: BLE001
            if self._scheme == "s3" or isinstance(error, TypeError):
                raise error_of(error, self.url(name)) from None
            self._signs = False
            return None

    def _unsigned(self, name: str) -> str | None:
        """Where a public object is; None where only obstore knows."""
        if self._scheme != "s3" or is_set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"):
            return None
        endpoint = self._endpoint or f"https://s3.{self._region}.amazonaws.com"
        return f"{endpoint}/{quote(self._bucket)}/{quote(name)}"


def _info(name: str, meta: Any) -> ObjectInfo:
    size = int(meta["size"])
    identity = Identity(version=meta["version"] or "", etag=meta["e_tag"] or "", size=size)
    return ObjectInfo(name, size, identity)


def _just_before(prefix: str) -> str | None:
    """A name that sorts before all that begin with `prefix`, and behind nearly all others that come before them.

    >>> _just_before("train-1") == "train-0\\N{REPLACEMENT CHARACTER}", _just_before("train/")
    (True, None)
    """
    last = ord(prefix[-1]) if prefix else 0
    if not prefix or prefix.endswith("/") or not 0x21 < last < 0xD800:
        return None  # all of the folder is asked for
    return prefix[:-1] + chr(last - 1) + "\N{REPLACEMENT CHARACTER}"
