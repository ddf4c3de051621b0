"""Every place where shards can live, by one name each: ours, and the real servers that there are."""

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

from ais_tar2tf.options import Read
from ais_tar2tf.server import serve
from ais_tar2tf.stores import Store
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.stores.memory import MemoryStore
from listening import Relay
from tests.benchmarks.web import serving
from tests.servers.minio import KEY, REGION, SECRET
from web import WebServer

_SERVERS = {"aistore": "aistore", "aistore-s3": "aistore", "minio": "minio"}
_HAS_NGINX = bool(shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin"))


@dataclass
class Place:
    """A store, how objects get there, how a name stands in its URLs, and how it is opened by URL."""

    store: Store
    put: Callable[[str, bytes], None]
    base: str  # what a name is appended to
    options: dict[str, Any] = field(default_factory=dict[str, Any])  # that `open` needs for it
    written: Callable[[str], str] = str
    lists: bool = True
    nodes: tuple[str, ...] = ()  # URLs of all that clients talk to
    not_there: frozenset[str] = frozenset()  # names that the server itself mistakes

    @property
    def ports(self) -> frozenset[int]:
        return frozenset(port for url in self.nodes if (port := urlsplit(url).port))

    def led_through(self, relay: Relay) -> tuple[str, dict[str, Any]]:
        """Base and options for the same objects by way of a relay in front of `nodes`."""
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
def place_of(kind: str, read: Read, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """A new and empty one of this kind."""
    with contextlib.ExitStack() as stack:
        place = _MAKERS[kind](read, request, folder, stack)
        stack.callback(place.store.close)
        yield place


def _file(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    store = FileStore(str(folder))
    return Place(store, store.put, f"{folder}/")


def _memory(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    bucket = new_name()
    store = MemoryStore(bucket)
    return Place(store, store.put, f"memory://{bucket}/")


def _embedded(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    server = stack.enter_context(serve(folder))
    return _ais_place(server.url, read, (server.url, server.target_url))


def _aistore(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    cluster = request.getfixturevalue("aistore")
    return _ais_place(cluster.url, read, (cluster.url, *cluster.target_urls))


def _ais_place(url: str, read: Read, nodes: tuple[str, ...]) -> Place:
    bucket = new_name()
    store = AisStore(bucket, read, endpoint=url)
    store.create()
    return Place(store, store.put, f"ais://{bucket}/", {"endpoint": url}, nodes=nodes)


def _minio(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    server = request.getfixturevalue("minio")
    _set_environment(request, server.environment)
    return _s3_place(server.url, read, (server.url,))


def _aistore_s3(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    cluster = request.getfixturevalue("aistore")
    environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    _set_environment(request, environment)
    place = _s3_place(f"{cluster.url}/s3", read, (cluster.url, *cluster.target_urls))
    place.not_there = frozenset({"q?.tar"})  # its redirect leaves the `?` as it is, where a query begins
    return place


def _s3_place(endpoint: str, read: Read, nodes: tuple[str, ...]) -> Place:
    bucket = new_name()
    store = CloudStore("s3", bucket, read, endpoint=endpoint)
    store.create()
    return Place(store, store.put, f"s3://{bucket}/", {"endpoint": endpoint}, nodes=nodes)


def _web(*, ranges: bool) -> Callable[..., Place]:
    def make(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
        web = stack.enter_context(WebServer(ranges=ranges))
        store = HttpStore(web.url, read)
        put = web.objects.__setitem__
        return Place(store, put, f"{web.url}/", {}, quote, lists=False, nodes=(web.url,))

    return make


def _nginx(read: Read, request: pytest.FixtureRequest, folder: Path, stack: contextlib.ExitStack) -> Place:
    web, shown = stack.enter_context(serving(folder))
    seconds = itertools.count(1_000_000_000)

    def put(name: str, data: bytes) -> None:
        path = shown / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        now = next(seconds)  # its ETag is made of whole seconds and the size
        os.utime(path, (now, now))

    store = HttpStore(web.root, read)
    return Place(store, put, f"{web.root}/", {}, quote, lists=False, nodes=(web.root,))


_MAKERS: dict[str, Callable[..., Place]] = {
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
