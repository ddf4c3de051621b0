"""Where shards live: one file a store, found by the scheme of a URL. A new scheme is a new file and a line here."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from ais_tar2tf.errors import OptionError, StoreError
from ais_tar2tf.locations import shown_location
from ais_tar2tf.options import Read
from ais_tar2tf.stores._base import (
    Asks,
    Body,
    HandsOver,
    Identity,
    Interrupt,
    Keeper,
    ObjectInfo,
    Pieces,
    Ranges,
    Store,
    asked,
    whole_url,
)
from ais_tar2tf.stores._buckets import check_bucket
from ais_tar2tf.stores._contact import CONTACTS, Endpoint
from ais_tar2tf.stores._token import TokenSource
from ais_tar2tf.stores._wrapper import WrapperStore

__all__ = [
    "SCHEMES",
    "Access",
    "Asks",
    "Body",
    "HandsOver",
    "Identity",
    "Interrupt",
    "Keeper",
    "ObjectInfo",
    "Pieces",
    "Ranges",
    "Store",
    "TokenSource",
    "WrapperStore",
    "asked",
    "check_access",
    "check_bucket",
    "has_endpoint",
    "moved",
    "open_store",
    "remember",
    "reopener",
    "split_url",
    "whole_url",
]

_Make = Callable[[str, Read, str | None, TokenSource | None], Store]


def _ais(bucket: str, read: Read, endpoint: str | None, token: TokenSource | None) -> Store:
    from ais_tar2tf.stores.ais import AisStore

    return AisStore(bucket, read, endpoint=endpoint, token=token)


def _http(scheme: str) -> _Make:
    def make(host: str, read: Read, _endpoint: str | None, _token: TokenSource | None) -> Store:
        from ais_tar2tf.stores.http import HttpStore

        return HttpStore(f"{scheme}://{host}", read)

    return make


def _cloud(scheme: str) -> _Make:
    def make(bucket: str, read: Read, endpoint: str | None, _token: TokenSource | None) -> Store:
        from ais_tar2tf.stores.cloud import CloudStore

        return CloudStore(scheme, bucket, read, endpoint=endpoint)

    return make


def _file(_host: str, _read: Read, _endpoint: str | None, _token: TokenSource | None) -> Store:
    from ais_tar2tf.stores.file import FileStore

    return FileStore()


def _memory(bucket: str, _read: Read, _endpoint: str | None, _token: TokenSource | None) -> Store:
    from ais_tar2tf.stores.memory import MemoryStore

    return MemoryStore(bucket)


SCHEMES: dict[str, _Make] = {
    "ais": _ais,
    "http": _http("http"),
    "https": _http("https"),
    "s3": _cloud("s3"),
    "gs": _cloud("gs"),
    "az": _cloud("az"),
    "file": _file,
    "memory": _memory,
}


def split_url(url: str) -> tuple[str, str, str]:
    """(scheme, bucket or host, name); a plain path has the scheme `file` and an empty host.

    >>> split_url("ais://imagenet/train-{0..3}.tar")
    ('ais', 'imagenet', 'train-{0..3}.tar')
    >>> split_url("/data/train.tar")
    ('file', '', '/data/train.tar')
    >>> split_url("file:///data/my%20shards/")
    ('file', '', '/data/my shards/')
    """
    scheme, separator, rest = url.partition("://")
    if not separator or "/" in scheme:
        return "file", "", url
    scheme = scheme.lower()
    if scheme == "file":
        return scheme, "", unquote(rest if rest.startswith("/") else f"/{rest.partition('/')[2]}")
    bucket, _, name = rest.partition("/")
    return scheme, bucket, name


def has_endpoint(url: str) -> bool:
    """Return whether a URL is in a store that has an endpoint; a path, for example, is not.

    >>> has_endpoint("s3://bucket/0.tar"), has_endpoint("http://host/0.tar"), has_endpoint("data/0.tar")
    (True, False, False)
    """
    return split_url(url)[0] not in _WITHOUT_ENDPOINT


def check_access(*urls: str, endpoint: str | None, token: TokenSource | None) -> None:
    """Refuse an endpoint or a token that none of these URLs and paths makes use of.

    Those of the environment are refused nowhere: they may be set for other programs, or for other calls.

    Raises:
        OptionError: They would have no effect.
    """
    if any(map(has_endpoint, urls)):
        return
    scheme, _, path = split_url(urls[0])
    is_relative = scheme == "file" and path and not path.startswith(("/", "."))
    meant = f"say {shown_location(f'ais://{path}')} if that is meant, or " if is_relative else ""
    for name, value, known in (("endpoint", endpoint, "ais://, s3://, gs:// or az://"), ("token", token, "ais://")):
        if value:
            told = f"it goes with URLs that begin with {known}; {meant}leave it out"
            raise OptionError(f"{name}= has no effect for {shown_location(urls[0])}: {told}")


@dataclass(frozen=True)
class Access:
    """How a store was opened: with which endpoint and token, for URLs of which scheme."""

    scheme: str = ""
    endpoint: str | None = None
    token: TokenSource | None = field(default=None, repr=False)

    def to(self, url: str, endpoint: str | None, token: TokenSource | None) -> tuple[str | None, TokenSource | None]:
        """Return the endpoint and the token for a URL: these, else those of a URL with the same scheme.

        The token goes to no other endpoint than the one that it was given for.
        """
        if endpoint or not has_endpoint(url) or split_url(url)[0] != self.scheme:
            return endpoint, token
        return self.endpoint, token or self.token


def open_store(
    scheme: str, bucket: str, read: Read, *, endpoint: str | None = None, token: TokenSource | None = None
) -> Store:
    """The store for a scheme. What it needs beside the core is imported here, and its absence names the extra."""
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise StoreError(f"no store for this scheme; there are {known} and plain paths", url=f"{scheme}://{bucket}")
    store = SCHEMES[scheme](bucket, read, endpoint, token)
    if scheme not in _OF_THIS_PROCESS:
        remember(store, functools.partial(open_store, scheme, bucket, read, endpoint=endpoint, token=token))
    return store


_WITHOUT_ENDPOINT = frozenset({"file", "http", "https"})  # memory:// stands in for any other store
_OF_THIS_PROCESS = frozenset({"memory"})
_reopeners: weakref.WeakKeyDictionary[Store, Callable[[], Store]] = weakref.WeakKeyDictionary()


def remember(store: Store, reopen: Callable[[], Store]) -> None:
    """How another process opens the same store."""
    _reopeners[store] = reopen


def moved(store: Store) -> Callable[[], Store]:
    """What opens the same store in another process; an error where none can."""
    reopen = reopener(store)
    if reopen is None:
        raise StoreError("this store lives in this process, and cannot go to another one", url=store.url(""))
    return functools.partial(_reopened, reopen, CONTACTS.answered())


def _reopened(reopen: Callable[[], Store], answered: tuple[Endpoint, ...]) -> Store:
    """Open a store in another process, which is as patient as the one that it comes from."""
    CONTACTS.begin_with(answered)
    return reopen()


def reopener(store: Store) -> Callable[[], Store] | None:
    """What opens the same store in another process; None where none can."""
    return _reopeners.get(store)
