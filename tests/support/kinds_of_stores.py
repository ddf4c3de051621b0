"""Open a store of each kind for a test: the package's own stores, and stores on real servers."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from ais_tar2tf.cluster.server import serve
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.stores.memory import MemoryStore
from tests.benchmarks.web import serving
from tests.servers.minio import KEY, REGION, SECRET
from tests.support.relays import Relay
from tests.support.web_server import WebServer

_SERVERS = {"aistore": "aistore", "aistore-s3": "aistore", "minio": "minio"}
_HAS_NGINX = bool(shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin"))


@dataclass
class StorePlace:
    """A store for one test, how to put objects into it, and how to open it by URL."""

    store: Store
    put: Callable[[str, bytes], None]
    base: str  # the URL of an object is `base` followed by its quoted name
    options: dict[str, Any] = field(default_factory=dict[str, Any])  # arguments that `t2t.open` needs for this store
    quoted: Callable[[str], str] = str  # writes an object's name as a part of a URL
    lists: bool = True  # whether the store can list its objects
    nodes: tuple[str, ...] = ()  # URLs of all servers that clients connect to
    unsupported_names: frozenset[str] = frozenset()  # names that the server itself confuses with others

    @property
    def ports(self) -> frozenset[int]:
        return frozenset(port for url in self.nodes if (port := urlsplit(url).port))

    def through_relay(self, relay: Relay) -> tuple[str, dict[str, Any]]:
        """Return `base` and `options` that reach the same objects through a relay in front of `nodes`."""
        base, options = self.base, dict(self.options)
        for number, url in enumerate(self.nodes):
            base = base.replace(url, relay.url(number))
            if "endpoint" in options:
                options["endpoint"] = options["endpoint"].replace(url, relay.url(number))
        return base, options


def _marked(kind: str) -> Any:
    return pytest.param(kind, marks=pytest.mark.servers(_SERVERS[kind])) if kind in _SERVERS else kind


LOCAL = ["file", "memory"]
REMOTE = ["ais", "http", "http-without-ranges", *(["nginx"] if _HAS_NGINX else []), *_SERVERS]
KINDS = [_marked(kind) for kind in (*LOCAL, *REMOTE)]
THROUGH_AIS = [_marked(kind) for kind in ("ais", "aistore")]
OVER_THE_NETWORK = [_marked(kind) for kind in REMOTE]


@contextlib.contextmanager
def new_place(kind: str, read: Read, request: pytest.FixtureRequest, folder: Path) -> Iterator[StorePlace]:
    """Open a new, empty store of this kind."""
    with contextlib.ExitStack() as stack:
        place = _MAKERS[kind](read, request, folder, stack)
        stack.callback(place.store.close)
        yield place


def _file(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    store = FileStore(str(folder))
    return StorePlace(store, store.put, f"{folder}/")


def _memory(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    bucket = new_name()
    store = MemoryStore(bucket)
    return StorePlace(store, store.put, f"memory://{bucket}/")


def _embedded(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    server = stack.enter_context(serve(folder))
    return _ais_place(server.url, read, (server.url, server.target_url))


def _aistore(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    cluster = request.getfixturevalue("aistore")
    return _ais_place(cluster.url, read, (cluster.url, *cluster.target_urls))


def _ais_place(url: str, read: Read, nodes: tuple[str, ...]) -> StorePlace:
    bucket = new_name()
    store = AisStore(bucket, read, endpoint=url)
    store.create()
    return StorePlace(store, store.put, f"ais://{bucket}/", {"endpoint": url}, nodes=nodes)


def _minio(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    server = request.getfixturevalue("minio")
    _set_environment(request, server.environment)
    return _s3_place(server.url, read, (server.url,))


def _aistore_s3(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    cluster = request.getfixturevalue("aistore")
    environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    _set_environment(request, environment)
    place = _s3_place(f"{cluster.url}/s3", read, (cluster.url, *cluster.target_urls))
    place.unsupported_names = frozenset(
        {"q?.tar"}
    )  # its redirect does not quote the `?`, so that a query begins there
    return place


def _s3_place(endpoint: str, read: Read, nodes: tuple[str, ...]) -> StorePlace:
    bucket = new_name()
    store = CloudStore("s3", bucket, read, endpoint=endpoint)
    store.create()
    return StorePlace(store, store.put, f"s3://{bucket}/", {"endpoint": endpoint}, nodes=nodes)


def _web(*, ranges: bool) -> Callable[..., StorePlace]:
    def make(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
        web = stack.enter_context(WebServer(ranges=ranges))
        store = HttpStore(web.url, read)
        put = web.objects.__setitem__
        return StorePlace(store, put, f"{web.url}/", {}, quote, lists=False, nodes=(web.url,))

    return make


def _nginx(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> StorePlace:
    web, shown = stack.enter_context(serving(folder))
    seconds = itertools.count(1_000_000_000)

    def put(name: str, data: bytes) -> None:
        path = shown / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        now = next(seconds)  # nginx computes the ETag from the size and the time in whole seconds
        os.utime(path, (now, now))

    store = HttpStore(web.root, read)
    return StorePlace(store, put, f"{web.root}/", {}, quote, lists=False, nodes=(web.root,))


_MAKERS: dict[str, Callable[..., StorePlace]] = {
    "file": _file,
    "memory": _memory,
    "ais": _embedded,
    "http": _web(ranges=True),
    "http-without-ranges": _web(ranges=False),
    "nginx": _nginx,
    "aistore": _aistore,
    "aistore-s3": _aistore_s3,
    "minio": _minio,
}


def _set_environment(request: pytest.FixtureRequest, environment: dict[str, str]) -> None:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def new_name() -> str:
    return f"b{uuid.uuid4().hex[:16]}"
