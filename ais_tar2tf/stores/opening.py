"""Opens a store by the scheme of a URL. To add a kind of store, add a module, and an entry in the table `_SCHEMES`.

`base/urls/locations.py` has another list of schemes, which only serves to suggest a scheme for a misspelt URL. This
module must not import the module of a store before such a store is opened.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from ais_tar2tf.base.urls.locations import shown_location
from ais_tar2tf.errors import OptionError, StoreError
from ais_tar2tf.options import Read
from ais_tar2tf.stores.base import Store
from ais_tar2tf.stores.transport.contact import CONTACTS, Endpoint
from ais_tar2tf.stores.transport.tokens import TokenSource

__all__ = [
    "Access",
    "check_access",
    "has_endpoint",
    "has_listing",
    "open_store",
    "opener_of",
    "portable_opener",
    "remember_opener",
    "split_url",
]


def _ais(bucket: str, read: Read, endpoint: str | None, token: TokenSource | None) -> Store:
    from ais_tar2tf.stores.ais import AisStore

    return AisStore(bucket, read, endpoint=endpoint, token=token)


def _http(scheme: str, host: str, read: Read, *_: object) -> Store:
    from ais_tar2tf.stores.http import HttpStore

    return HttpStore(f"{scheme}://{host}", read)


def _cloud(scheme: str, bucket: str, read: Read, endpoint: str | None, _: object) -> Store:
    from ais_tar2tf.stores.cloud import CloudStore

    return CloudStore(scheme, bucket, read, endpoint=endpoint)


def _file(*_: object) -> Store:
    from ais_tar2tf.stores.file import FileStore

    return FileStore()


def _memory(bucket: str, *_: object) -> Store:
    from ais_tar2tf.stores.memory import MemoryStore

    return MemoryStore(bucket)


@dataclass(frozen=True, slots=True)
class _Scheme:
    """The function that opens the stores of one scheme, and what these stores accept and can do."""

    open: Callable[[str, Read, str | None, TokenSource | None], Store]  # (bucket or host, options, endpoint, token)
    has_endpoint: bool = True  # whether the stores accept an endpoint
    has_listing: bool = True  # whether the stores can list names
    takes_token: bool = False  # whether the stores accept a token
    is_portable: bool = True  # whether another process can open the same store


_SCHEMES = {
    "ais": _Scheme(_ais, takes_token=True),
    "http": _Scheme(functools.partial(_http, "http"), has_endpoint=False, has_listing=False),
    "https": _Scheme(functools.partial(_http, "https"), has_endpoint=False, has_listing=False),
    "s3": _Scheme(functools.partial(_cloud, "s3")),
    "gs": _Scheme(functools.partial(_cloud, "gs")),
    "az": _Scheme(functools.partial(_cloud, "az")),
    "file": _Scheme(_file, has_endpoint=False),
    # A store in memory accepts an endpoint and a token, because tests use such a store in place of any other store.
    "memory": _Scheme(_memory, takes_token=True, is_portable=False),
}


def split_url(url: str) -> tuple[str, str, str]:
    """Split a URL into scheme, bucket or host, and name. A plain path has the scheme `file` and an empty host.

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
    """Return whether the store of a URL accepts an endpoint. The store of a path, for example, does not.

    >>> has_endpoint("s3://bucket/0.tar"), has_endpoint("http://host/0.tar"), has_endpoint("data/0.tar")
    (True, False, False)
    """
    return _scheme_of(url).has_endpoint


def has_listing(url: str) -> bool:
    """Return whether the store of a URL can list names. If it cannot, a `?` in the URL begins a query, not a glob.

    >>> has_listing("s3://bucket/*.tar"), has_listing("http://host/0.tar?version=1"), has_listing("data/")
    (True, False, True)
    """
    return _scheme_of(url).has_listing


def _scheme_of(url: str) -> _Scheme:
    """Return the `_Scheme` of a URL. An unknown scheme counts as `ais` here: `open_store` refuses it later."""
    return _SCHEMES.get(split_url(url)[0], _SCHEMES["ais"])


def check_access(*urls: str, endpoint: str | None, token: TokenSource | None) -> None:
    """Refuse an endpoint or a token that no store of these URLs and paths uses.

    Pass only an endpoint and a token that the user gave as arguments. An endpoint or a token in an environment
    variable may be meant for other programs, so it must not be refused.

    Raises:
        OptionError: The endpoint or the token would have no effect.
    """
    schemes = list(map(_scheme_of, urls))
    has_effect = {
        "endpoint": any(each.has_endpoint for each in schemes),
        "token": any(each.takes_token for each in schemes),
    }
    scheme, _, path = split_url(urls[0])
    is_relative = scheme == "file" and path and not path.startswith(("/", "."))
    advice = f"say {shown_location(f'ais://{path}')} if that is meant, or " if is_relative else ""
    users = {name: each for name, each in _SCHEMES.items() if each.is_portable}
    with_endpoint = [f"{name}://" for name, each in users.items() if each.has_endpoint]
    with_token = [f"{name}://" for name, each in users.items() if each.takes_token]
    for name, value, known in (("endpoint", endpoint, with_endpoint), ("token", token, with_token)):
        if value and not has_effect[name]:
            begin_with = " or ".join(filter(None, (", ".join(known[:-1]), known[-1])))
            message = f"it goes with URLs that begin with {begin_with}; {advice}leave it out"
            raise OptionError(f"{name}= has no effect for {shown_location(urls[0])}: {message}")


@dataclass(frozen=True)
class Access:
    """The endpoint and the token with which a store was opened, and the scheme of the store's URLs."""

    scheme: str = ""
    endpoint: str | None = None
    token: TokenSource | None = field(default=None, repr=False)

    def to(self, url: str, endpoint: str | None, token: TokenSource | None) -> tuple[str | None, TokenSource | None]:
        """Return the endpoint and the token for another URL.

        A given endpoint or token is always used. If no endpoint is given, and the URL has the scheme of this store,
        the result has this store's endpoint, and also this store's token if no token is given. In all other cases
        this store's token is not used, so that the token is never sent to another endpoint.
        """
        if endpoint or not has_endpoint(url) or split_url(url)[0] != self.scheme:
            return endpoint, token
        return self.endpoint, token or self.token


def open_store(
    scheme: str, bucket: str, read: Read, *, endpoint: str | None = None, token: TokenSource | None = None
) -> Store:
    """Open the store of a scheme, and import its module. The error for a missing package names the extra to install.

    Raises:
        StoreError: There is no such scheme, or its store cannot be opened.
    """
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise StoreError(f"no store for this scheme; there are {known} and plain paths", url=f"{scheme}://{bucket}")
    store = _SCHEMES[scheme].open(bucket, read, endpoint, token)
    if _SCHEMES[scheme].is_portable:
        remember_opener(store, functools.partial(open_store, scheme, bucket, read, endpoint=endpoint, token=token))
    return store


_openers: weakref.WeakKeyDictionary[Store, Callable[[], Store]] = weakref.WeakKeyDictionary()


def remember_opener(store: Store, opener: Callable[[], Store]) -> None:
    """Remember a function that opens the same store in another process."""
    _openers[store] = opener


def opener_of(store: Store) -> Callable[[], Store] | None:
    """Return the function that opens the same store in another process; None if no other process can open it."""
    return _openers.get(store)


def portable_opener(store: Store) -> Callable[[], Store]:
    """Return a function that can be pickled, and opens the same store in another process.

    Requests to an endpoint that has answered are retried for longer than requests to an endpoint that never has. So
    the function also tells the other process which endpoints have answered this process.

    Raises:
        StoreError: The store exists in this process only.
    """
    opener = opener_of(store)
    if opener is None:
        raise StoreError("this store lives in this process, and cannot go to another one", url=store.url(""))
    return functools.partial(_open_elsewhere, opener, CONTACTS.answered())


def _open_elsewhere(opener: Callable[[], Store], answered: tuple[Endpoint, ...]) -> Store:
    """Open a store in another process. `answered` are the endpoints that answered the first process."""
    CONTACTS.begin_with(answered)
    return opener()
