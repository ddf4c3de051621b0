"""One contract for every store, and further tests of each store."""

from __future__ import annotations

import contextlib
import gzip
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import responses

import ais_tar2tf as t2t
from ais_tar2tf.cluster.server import serve
from ais_tar2tf.cluster.server.lifecycle import Server
from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import MIB, Limits, Read, Retry, Timeouts
from ais_tar2tf.stores import Body, Store, open_store, split_url
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.ais_endpoint import endpoint_url
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.stores.transport.answers import error_for
from ais_tar2tf.stores.transport.redirects import redirect_target
from tests.servers.certificates import Certificates
from tests.support.fault_server import Fault, FaultServer, plain, tagged
from tests.support.kinds_of_stores import KINDS, StorePlace, new_place
from tests.support.own_errors import everything_printed
from tests.support.web_server import WebServer

TOKEN = "let-me-in"
READ = Read(
    timeouts=Timeouts(connect=2, idle=5),
    retry=Retry(attempts=2, first_delay=0.001, max_delay=0.01, max_retry_after=0.05),
    limits=Limits(listing_page=2),
)
DATA = bytes(range(256)) * 300 + b"odd"
ODD_NAMES = [
    "with space.tar",
    "ünïcödé-日本.tar",
    "100%.tar",
    "a%20b.tar",
    "a+b.tar",
    "a#b.tar",
    "deep/er/x.tar",
    "q?.tar",
]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    with new_place(request.param, READ, request, tmp_path) as found:
        yield found


def drain(body: Body, step: int = 65536) -> bytes:
    """Read the rest of a body, and check that further reads return nothing."""
    found, buffer = bytearray(), memoryview(bytearray(step))
    while count := body.readinto(buffer):
        assert count <= step
        found += buffer[:count]
    assert body.readinto(buffer) == 0
    return bytes(found)


def read(store: Store, name: str, start: int = 0, stop: int | None = None, step: int = 65536) -> bytes:
    """Read a range, also from a store that sends more."""
    body = store.open(name, start, stop)
    try:
        assert body.start in (0, start)
        found = drain(body, step)
        if body.stop is not None:
            assert body.stop == body.start + len(found)
        return found[start - body.start :][: None if stop is None else stop - start]
    finally:
        body.close()


# The contract


@pytest.mark.parametrize("step", [7919, 65536, 1 << 20])
def test_open_returns_the_whole_object(place: StorePlace, step: int) -> None:
    place.put("x.tar", DATA)
    assert read(place.store, "x.tar", step=step) == DATA


@pytest.mark.parametrize(
    ("start", "stop"), [(1, None), (len(DATA) - 1, None), (0, 1), (100, 70_000), (5, 10**9), (len(DATA), None)]
)
def test_open_returns_a_range(place: StorePlace, start: int, stop: int | None) -> None:
    place.put("x.tar", DATA)
    assert read(place.store, "x.tar", start, stop) == DATA[start:stop]


def test_an_empty_buffer_reads_nothing(place: StorePlace) -> None:
    place.put("x.tar", b"abc")
    body = place.store.open("x.tar")
    assert body.readinto(memoryview(bytearray())) == 0
    assert drain(body, 2) == b"abc"
    body.close()


@pytest.mark.parametrize("stop", [None, 1, 10**6])
def test_an_empty_object_is_empty(place: StorePlace, stop: int | None) -> None:
    place.put("empty.tar", b"")
    assert read(place.store, "empty.tar", 0, stop) == b""
    body = place.store.open("empty.tar", 0, stop)
    assert body.info.size == 0
    body.close()


def test_body_and_head_state_the_same_identity(place: StorePlace) -> None:
    place.put("x.tar", DATA)
    head = place.store.head("x.tar")
    assert head.size == len(DATA)
    for start, stop in ((0, None), (7, None), (7, 9)):
        body = place.store.open("x.tar", start, stop)
        assert body.info == head
        body.close()


def test_an_overwritten_object_has_another_identity(place: StorePlace) -> None:
    place.put("x.tar", b"first")
    before = place.store.head("x.tar").identity
    assert before.differs_from(place.store.head("x.tar").identity) is None
    place.put("x.tar", b"other")
    assert before.differs_from(place.store.head("x.tar").identity) is not None
    assert read(place.store, "x.tar") == b"other"


@pytest.mark.parametrize("ask", ["open", "open a range", "head"])
def test_a_missing_object_is_an_error_that_names_it(place: StorePlace, ask: str) -> None:
    asks = {
        "head": place.store.head,
        "open": place.store.open,
        "open a range": lambda name: place.store.open(name, 5),
    }
    with pytest.raises(ShardNotFound) as caught:
        asks[ask]("no-such.tar")
    assert caught.value.url == place.store.url("no-such.tar")
    assert caught.value.url in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_may_contain_any_character(place: StorePlace, name: str) -> None:
    if name in place.unsupported_names:
        return
    place.put(name, name.encode())
    written = place.quoted(name)
    assert read(place.store, written) == name.encode()
    assert place.store.head(written).size == len(name.encode())
    if place.lists:
        assert [info.name for info in place.store.list("")] == [name]


def test_a_listing_is_in_order_over_its_pages(place: StorePlace) -> None:
    if not place.lists:
        with pytest.raises(StoreError, match="no listing"):
            list(place.store.list(""))
        return
    names = ["a-2.tar", "a-10.tar", "a.tar", "aé.tar", "b.tar", "c/1.tar", "c/2.tar", "c/d/3.tar", "A.tar"]
    for at, name in enumerate(names):
        place.put(name, b"x" * at)
    found = list(place.store.list(""))
    assert [info.name for info in found] == sorted(names)
    assert {info.name: info.size for info in found} == {name: at for at, name in enumerate(names)}
    for prefix in ("a", "c/", "a-", "c/1", "c/d", "b.tar"):
        assert [i.name for i in place.store.list(prefix)] == sorted(n for n in names if n.startswith(prefix)), prefix
    assert list(place.store.list("nothing/like/it")) == []


def test_no_listing_loses_a_name(place: StorePlace) -> None:
    """If AIStore loses names between two pages, this is an error, not a shorter listing."""
    names = ["a-2.tar", "a-10.tar", "a.tar", "a/1.tar", "a/2.tar", "a-b/c.tar", "b.tar"]
    if not place.lists:
        return
    for name in names:
        place.put(name, b"x")
    if place.base.startswith("ais:"):
        with pytest.raises(StoreError, match="leave out names"):
            list(place.store.list(""))
    else:
        assert [info.name for info in place.store.list("")] == sorted(names)
    for prefix in ("a/", "a-b/", "a/1"):
        assert [i.name for i in place.store.list(prefix)] == sorted(n for n in names if n.startswith(prefix)), prefix
    with t2t.open(f"{place.base}a*", **place.options) as src:  # this listing needs one page
        assert [url.removeprefix(place.base) for url in src.shards] == ["a-2.tar", "a-10.tar", "a.tar"]


def test_names_that_a_page_hides_are_listed_or_an_error(place: StorePlace) -> None:
    """AIStore never lists `a-1` after a page that ends inside `a/`."""
    if not place.lists:
        return
    names = ["a-1.tar", *(f"a/{number:02}.tar" for number in range(20)), "b.tar"]
    for name in names:
        place.put(name, b"x")
    for prefix in ("", "a-"):
        if place.base.startswith("ais:"):
            with contextlib.suppress(StoreError):
                assert [info.name for info in place.store.list(prefix)] == [n for n in names if n.startswith(prefix)]
        else:
            assert [info.name for info in place.store.list(prefix)] == [n for n in names if n.startswith(prefix)]
    assert [info.name for info in place.store.list("a/")] == names[1:-1]


def test_an_object_that_is_deleted_during_a_listing_is_no_error(place: StorePlace) -> None:
    if not place.lists or _is_read_only(place):
        return
    for name in ("a", "b", "c"):
        place.put(name, DATA)
    listing = place.store.list("")
    found = [next(listing).name]
    place.store.delete("b")
    found += [info.name for info in listing]
    assert [name for name in found if name != "b"] == ["a", "c"]


@pytest.mark.parametrize("size", [0, 5, 3_000_000])
def test_a_file_is_put_like_bytes(place: StorePlace, tmp_path: Path, size: int) -> None:
    if _is_read_only(place):
        return
    path = tmp_path / "file"
    path.write_bytes((DATA * (size // len(DATA) + 1))[:size])
    place.store.put("deep/file", path)
    assert read(place.store, "deep/file") == path.read_bytes()


@pytest.mark.parametrize("old", ["a/old", "a/old one", "ü+%", *(f"{n} {n}" for n in range(6))])
def test_a_moved_object_has_only_the_new_name(place: StorePlace, old: str) -> None:
    """A store that cannot move objects raises an error and changes nothing."""
    if _is_read_only(place):
        return
    place.store.put(old, DATA)
    place.store.put("new", b"replaced")
    there, gone = ("new", old) if place.store.move(old, "new") else (old, "newer")
    assert read(place.store, there) == DATA
    with pytest.raises(ShardNotFound):
        place.store.head(gone)


def test_an_object_is_moved_to_any_name(place: StorePlace) -> None:
    if _is_read_only(place):
        return
    for new in {*ODD_NAMES, *(f"{n}%41#" for n in range(6))} - place.unsupported_names:
        place.store.put("old", new.encode())
        there, gone = (new, "old") if place.store.move("old", new) else ("old", new)
        assert read(place.store, there) == new.encode()
        with pytest.raises(ShardNotFound):
            place.store.head(gone)


def test_an_object_that_is_moved_to_its_own_name_stays(place: StorePlace) -> None:
    if _is_read_only(place):
        return
    place.store.put("old", DATA)
    place.store.move("old", "old")
    assert read(place.store, "old") == DATA


def _is_read_only(place: StorePlace) -> bool:
    """Return whether the store is read-only, and check that its error says so."""
    if not isinstance(place.store, HttpStore):
        return False
    for ask in (lambda: place.store.put("x", b""), lambda: place.store.move("x", "y")):
        with pytest.raises(StoreError, match="read only"):
            ask()
    return True


def test_create_may_be_called_again(place: StorePlace) -> None:
    if not place.lists:
        with pytest.raises(StoreError, match="no buckets"):
            place.store.create()
        with pytest.raises(StoreError, match="read only"):
            place.store.put("x", b"")
        return
    place.store.create()
    place.store.put("x.tar", b"x")
    place.store.create()
    assert read(place.store, "x.tar") == b"x"


def _connected(place: StorePlace) -> set[tuple[int, int]]:
    """Return our port and the server's port of each connection."""
    connections = psutil.Process().net_connections("tcp")
    return {
        (each.laddr.port, each.raddr.port) for each in connections if each.raddr and each.raddr.port in place.ports
    }


def test_closing_leaves_no_socket_open(place: StorePlace) -> None:
    before = _connected(place)  # other tests use the same real servers
    place.put("x.tar", DATA * 20)
    read(place.store, "x.tar")
    place.store.head("x.tar")
    unread = place.store.open("x.tar")
    unread.readinto(memoryview(bytearray(10)))
    unread.close()
    unread.close()
    place.store.close()
    assert _connected(place) <= before


# Finding a store


def test_an_unknown_scheme_is_answered_with_the_known_ones() -> None:
    with pytest.raises(StoreError, match=r"gopher://x: no store for this scheme; there are ais://, http://.*paths"):
        open_store("gopher", "x", READ)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("ais://b/a/b.tar", ("ais", "b", "a/b.tar")),
        ("AIS://b/x", ("ais", "b", "x")),
        ("file:///data/x.tar", ("file", "", "/data/x.tar")),
        ("file://localhost/data/x.tar", ("file", "", "/data/x.tar")),
        ("data/x.tar", ("file", "", "data/x.tar")),
        ("http://h:1/p?q=1", ("http", "h:1", "p?q=1")),
        ("memory://b", ("memory", "b", "")),
    ],
)
def test_a_url_has_three_parts(url: str, parts: tuple[str, str, str]) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize("scheme", ["file", "memory", "http", "https"])
def test_stores_are_found_by_scheme(scheme: str) -> None:
    store = open_store(scheme, "bucket", READ)
    assert "x" in store.url("x")
    assert repr(store)
    store.close()


# file


def test_a_put_file_is_complete_and_has_normal_permissions(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    store.put("a.tar", b"a")
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    assert (tmp_path / "a.tar").stat().st_mode == ordinary.stat().st_mode
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar", "ordinary"]
    store.put("n" * 250 + ".tar", b"b")  # the temporary file next to it has a short name


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    store.put("a.tar", b"a")
    with pytest.raises(ShardNotFound):
        store.head("a.tar/b")
    with pytest.raises(StoreError, match="file system"):
        store.put("a.tar/b", b"")
    with pytest.raises(StoreError, match="file system"):
        store.open("")
    with pytest.raises(StoreError):
        FileStore(str(tmp_path / "a.tar")).create()


# ais


@pytest.fixture
def ais_server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x.tar").write_bytes(DATA)
    with serve(tmp_path, token=TOKEN) as server:
        yield server


@pytest.fixture
def faulty() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def test_the_endpoint_is_an_argument_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match=r"no endpoint: .*AIS_ENDPOINT"):
        endpoint_url(None)
    monkeypatch.setenv("AIS_ENDPOINT", "http://from-environment:51080/")
    assert endpoint_url(None) == "http://from-environment:51080"
    assert endpoint_url("given:8080") == "http://given:8080"
    assert endpoint_url("https://given") == "https://given"


@pytest.mark.parametrize(
    "wrong",
    ["ftp://host", "http://", "http://host:port", "http://me:secret@host:1", "me:secret@host", "h:1?secret", "h:1#x"],
)
def test_an_invalid_endpoint_is_refused(wrong: str) -> None:
    with pytest.raises(StoreError, match="no endpoint; one looks like") as caught:
        endpoint_url(wrong)
    assert "secret" not in everything_printed(caught.value)


@pytest.mark.parametrize("bucket", ["", "a/b"])
def test_a_bucket_has_a_name(bucket: str) -> None:
    with pytest.raises(StoreError, match="bucket's name"):
        AisStore(bucket, READ, endpoint="host")


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_the_token_is_sent_only_to_the_endpoint(
    ais_server: Server, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIS_AUTHN_TOKEN", f"{TOKEN}\n")
    store = AisStore("bucket", READ, endpoint=scheme + ais_server.url.removeprefix("http://"))
    assert read(store, "x.tar", 5) == DATA[5:]
    assert store.head("x.tar").size == len(DATA)
    store.put("y.tar", DATA)
    assert [info.name for info in store.list("")] == ["x.tar", "y.tar"]
    store.close()
    asked = {(seen.node, seen.method, seen.authorized) for seen in ais_server.requests}
    assert {("proxy", "GET", True), ("target", "GET", False), ("target", "PUT", False)} <= asked
    assert all(authorized == (node == "proxy") for node, _, authorized in asked)
    assert TOKEN not in repr(store)


@pytest.mark.parametrize("token", [None, "a-wrong-token"])
def test_without_the_token_access_is_denied(ais_server: Server, token: str | None) -> None:
    store = AisStore("bucket", READ, endpoint=ais_server.url, token=token)
    for ask in (store.open, store.head, lambda name: list(store.list(name)), lambda name: store.put(name, b"")):
        with pytest.raises(AccessDenied, match=r"ais://bucket/x.tar.*401.*AIS_AUTHN_TOKEN") as caught:
            ask("x.tar")
        assert token is None or token not in everything_printed(caught.value)
    store.close()


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_token_that_the_server_repeats_is_removed(faulty: FaultServer, status: int) -> None:
    body = b'{"status":%d,"message":"%s token %s was revoked"}' % (status, b"x" * 280, TOKEN.encode())
    fault = Fault(status=status, body=body, headers={"Hdr-Error": body.decode()})
    name = "v1/objects/bucket/x.tar?provider=ais"
    store = AisStore("bucket", READ, endpoint=faulty.url, token=TOKEN)
    faulty.add(name, plain(b""), [fault] * 5)
    for ask in (store.open, store.head):
        with pytest.raises(TransportError if status == 500 else AccessDenied, match=str(status)) as caught:
            ask("x.tar")
        assert "token let" not in everything_printed(caught.value)
        assert "xxx token" in str(caught.value)
    store.close()


@responses.activate
def test_an_explanation_in_a_header_is_shown_without_the_token() -> None:
    responses.head(
        "http://proxy/v1/objects/bucket/x.tar",
        status=403,
        headers={"Hdr-Error": f'{{"message":"{TOKEN} may not"}}'},
    )
    store = AisStore("bucket", READ, endpoint="http://proxy", token=TOKEN)
    with pytest.raises(AccessDenied, match=r"too few rights \(\[token\] may not\)") as caught:
        store.head("x.tar")
    assert TOKEN not in everything_printed(caught.value)
    store.close()


def test_a_token_that_is_invalid_in_a_header_is_refused_and_not_shown() -> None:
    with pytest.raises(StoreError, match="this is no token") as caught:
        AisStore("bucket", READ, endpoint="host", token=f"{TOKEN}\r\nX: y")
    assert TOKEN not in everything_printed(caught.value)


def test_a_large_put_is_sent_to_the_target(ais_server: Server, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    store = AisStore("bucket", READ, endpoint=ais_server.url, token=TOKEN)
    store.put("big file.tar", data)
    store.close()
    assert (tmp_path / "bucket" / "big file.tar").read_bytes() == data
    assert [(seen.node, seen.method) for seen in ais_server.requests] == [("proxy", "PUT"), ("target", "PUT")]


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("http://p/a", "http://t:1/b?pid=%2F&utm=1", "http://t:1/b?pid=%2F&utm=1"),
        ("http://p/a/b", "c?d", "http://p/a/c?d"),
        ("http://p/a/b", "/c", "http://p/c"),
        ("http://p/a", "//t/c", "http://t/c"),
        ("http://p/a", "https://t/c", "https://t/c"),
        ("https://p/a", "/c", "https://p/c"),
        ("https://p/a", "http://p/a", None),
        ("http://p/a", "http://user:secret@t/c", None),
        ("http://p/a", "//user@t/c", None),
        ("http://p/a", "file:///etc/passwd", None),
        ("http://p/a", "http://t:port/", None),
        ("http://p/a", "http://[t/", None),
        ("http://p/a", "http:///x", None),
    ],
)
def test_safe_redirects_are_followed(url: str, location: str, target: str | None) -> None:
    if target is not None:
        assert redirect_target(url, location, "ais://b/x") == target
        return
    with pytest.raises(StoreError, match=r"ais://b/x: a redirect to .* is not followed") as caught:
        redirect_target(url, location, "ais://b/x")
    assert "secret" not in everything_printed(caught.value)


@pytest.mark.parametrize("ask", ["open", "head", "put"])
@pytest.mark.parametrize("location", ["http://user:secret@127.0.0.1:1/x", "ftp://127.0.0.1/x"])
def test_a_bad_redirect_of_the_endpoint_is_refused(faulty: FaultServer, ask: str, location: str) -> None:
    name = "v1/objects/bucket/x.tar?provider=ais"
    faulty.add(name, plain(b""), [Fault(status=307, headers={"Location": location})])
    store = AisStore("bucket", READ, endpoint=faulty.url)
    with pytest.raises(StoreError, match="not followed") as caught:
        store.put("x.tar", b"data") if ask == "put" else getattr(store, ask)("x.tar")
    assert "secret" not in everything_printed(caught.value)
    assert len(faulty.requests) == 1
    store.close()


@pytest.mark.parametrize("ask", ["open", "head"])
@pytest.mark.parametrize("scheme", ["ais", "http"])
def test_redirects_end(faulty: FaultServer, ask: str, scheme: str) -> None:
    for at, onto in (("v1/objects/bucket/x.tar?provider=ais", "/a"), ("x.tar", "/a"), ("a", "/a")):
        faulty.add(at, plain(b""), [Fault(status=302, headers={"Location": onto})] * 20)
    store: Store = AisStore("bucket", READ, endpoint=faulty.url) if scheme == "ais" else HttpStore(faulty.url, READ)
    with pytest.raises(StoreError, match="redirects do not end") as caught:
        getattr(store, ask)("x.tar")
    assert not isinstance(caught.value, TransportError)  # that class would be retried
    assert len(faulty.requests) <= 6
    store.close()


def test_an_unsatisfiable_range_of_everything_ends(faulty: FaultServer) -> None:
    faulty.add("x.tar", plain(b"x"), [Fault(status=416)] * 5)
    store = HttpStore(faulty.url, READ)
    with pytest.raises(StoreError, match="416"):
        store.open("x.tar", 0, 10)
    assert len(faulty.requests) == 2
    store.close()


_NO_LISTINGS = [
    b"<html>",
    b"[]",
    b"[" * 100_000,
    b'{"entries":5}',
    b'{"entries":[{"size":"1"}]}',
    b'{"entries":[{"name":"x","size":"y"}]}',
    b'{"entries":[{"name":"x","size":1e999}]}',
]


@pytest.mark.parametrize("body", _NO_LISTINGS, ids=range(len(_NO_LISTINGS)))
def test_an_invalid_listing_is_an_error(faulty: FaultServer, body: bytes) -> None:
    faulty.add("v1/buckets/bucket?provider=ais", plain(b""), [Fault(status=200, body=body)])
    store = AisStore("bucket", READ, endpoint=faulty.url)
    with pytest.raises(StoreError, match="is the endpoint an AIStore proxy"):
        list(store.list(""))
    store.close()


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_answer_is_not_kept_in_memory(faulty: FaultServer, packed: bool) -> None:
    body, headers = bytes(80 * MIB), dict[str, str]()
    if packed:  # the client did not ask for compression
        body, headers = gzip.compress(bytes(128 * MIB), 1), {"Content-Encoding": "gzip"}
    faulty.add("v1/buckets/bucket?provider=ais", plain(b""), [Fault(status=200, headers=headers, body=body)])
    store = AisStore("bucket", READ, endpoint=faulty.url)
    with pytest.raises(StoreError, match="larger than any"):
        list(store.list(""))
    store.close()


@pytest.mark.parametrize("way", ["head", "head_once"])
@pytest.mark.parametrize("said", ["abc", "-1", "5, 5", "9" * 5000])
def test_a_length_that_is_no_number_is_ignored(faulty: FaultServer, said: str, way: str) -> None:
    for name in ("x.tar", "v1/objects/bucket/x.tar?provider=ais"):
        faulty.add(name, plain(b""), [Fault(status=200, headers={"Content-Length": said})] * 2)
    for store in (HttpStore(faulty.url, READ), AisStore("bucket", READ, endpoint=faulty.url)):
        assert getattr(store, way)("x.tar").size is None
        store.close()


@pytest.mark.parametrize("way", ["head", "head_once"])
@pytest.mark.parametrize("status", [304, 307])
def test_a_head_without_a_size_is_an_error(faulty: FaultServer, status: int, way: str) -> None:
    faulty.add("x.tar", tagged(b"abc"), [Fault(status=status)] * 9)
    store = HttpStore(faulty.url, READ)
    with pytest.raises(StoreError, match=str(status)):
        getattr(store, way)("x.tar")
    store.close()


def test_head_requests_the_uncompressed_object(faulty: FaultServer) -> None:
    """A compressed answer would have another size and another ETag."""
    faulty.add("x.tar", tagged(b"abc"))
    store = HttpStore(faulty.url, READ)
    store.head("x.tar")
    store.open("x.tar").close()
    assert [request.headers["accept-encoding"] for request in faulty.requests] == ["identity"] * 2
    store.close()


def test_retry_after_may_be_a_date() -> None:
    date = "Sat, 06 Nov 2027 08:00:00 GMT"
    told = {"30": 30, "1e9": 1e9, "Sat, 06 Nov 2027 08:00:09 GMT": 9}
    untold = ["", "-1", "nan", "soon", "Fri, 05 Nov 2027 08:00:00 GMT", "Sat, 99 Nov 2027 08:00:09 GMT"]
    for said, seconds in {**told, **dict.fromkeys(untold)}.items():
        error = error_for(429, "http://h/x", {"Retry-After": said, "Date": date})
        assert isinstance(error, TransportError)
        assert error.retry_after == seconds, said
    without = error_for(429, "http://h/x", {"Retry-After": date})
    assert isinstance(without, TransportError)
    assert without.retry_after is None


def test_a_deeply_nested_explanation_is_harmless() -> None:
    assert isinstance(error_for(403, "http://h/x", {}, b"[" * 4_000), AccessDenied)


def test_a_listing_that_repeats_itself_ends(faulty: FaultServer) -> None:
    page = b'{"entries":[{"name":"x","size":"1"}],"continuation_token":"x"}'
    faulty.add("v1/buckets/bucket?provider=ais", plain(b""), [Fault(status=200, body=page)] * 9)
    store = AisStore("bucket", READ, endpoint=faulty.url)
    with pytest.raises(StoreError, match="token repeats"):
        list(store.list(""))
    store.close()


def test_the_control_plane_retries(faulty: FaultServer) -> None:
    faulty.add("x.tar", plain(b"abc"), [Fault(mute=True)])
    store = HttpStore(faulty.url, READ)
    assert store.head("x.tar").size == 3
    faulty.script["x.tar"].extend([Fault(status=503)] * 2)
    with pytest.raises(TransportError, match="503"):
        store.head("x.tar")
    assert len(faulty.requests) == 4
    store.close()


def test_delays_grow_and_the_server_may_request_longer_ones() -> None:
    retry = Retry(first_delay=0.2, max_delay=8, max_retry_after=60)
    assert [retry.delay(tried, lambda: 1.0) for tried in (1, 2, 3, 9)] == [0.2, 0.4, 0.8, 8]
    assert retry.delay(1, lambda: 0.0) == 0.1
    assert retry.delay(1, lambda: 1.0, asked=7) == 7
    for much in (3600.0, float("inf")):
        assert retry.delay(1, lambda: 1.0, asked=much) == 60


def test_a_refused_connection_is_a_clear_error(faulty: FaultServer) -> None:
    url = faulty.url
    faulty.close()
    for store in (AisStore("bucket", READ, endpoint=url), HttpStore(url, READ)):
        for ask in (store.open, store.head):
            with pytest.raises(TransportError, match="is the endpoint right, and is it up"):
                ask("x.tar")
        store.close()


# http


@pytest.fixture
def object_web() -> Iterator[WebServer]:
    with WebServer() as server:
        server.objects["x.tar"] = DATA
        yield server


@pytest.mark.parametrize("location", ["/x.tar", "x.tar", "{url}/x.tar"])
def test_a_redirect_to_another_path_is_followed(object_web: WebServer, location: str) -> None:
    object_web.redirects["/old.tar"] = location.format(url=object_web.url)
    store = HttpStore(object_web.url, READ)
    assert read(store, "old.tar", 3, 9) == DATA[3:9]
    assert store.head("old.tar").size == len(DATA)
    store.close()


def test_a_redirect_that_is_not_encoded_is_followed(faulty: FaultServer) -> None:
    raw = "/grün ✓.tar".encode().decode("latin-1")
    faulty.add("old.tar", plain(b""), [Fault(status=301, headers={"Location": raw})])
    faulty.add(quote("grün ✓.tar"), plain(b"found"))
    store = HttpStore(faulty.url, READ)
    assert read(store, "old.tar") == b"found"
    store.close()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("a b.tar", "/a%20b.tar"),
        ("a%20b.tar", "/a%20b.tar"),
        ("ü.tar", "/%C3%BC.tar"),
        ("100%.tar", "/100%25.tar"),
        ("a#b.tar", "/a%23b.tar"),
        ("a+b.tar?sig=x%2Fy&z=1", "/a+b.tar?sig=x%2Fy&z=1"),
    ],
)
def test_names_in_urls_need_not_be_encoded(object_web: WebServer, name: str, target: str) -> None:
    store = HttpStore(object_web.url, READ)
    for ask in (store.open, store.head):
        with pytest.raises(ShardNotFound):
            ask(name)
    assert object_web.requests == [("GET", target), ("HEAD", target)]
    store.close()


@pytest.mark.parametrize("host", ["http://me:secret@host", "http://", "http://host:port"])
def test_an_invalid_host_is_refused(host: str) -> None:
    with pytest.raises(StoreError, match=r"no host\[:port\]") as caught:
        HttpStore(host, READ)
    assert "secret" not in everything_printed(caught.value)


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
@pytest.mark.parametrize("credentials", ["", "me:se%40cret@"])
def test_the_proxy_of_the_environment_is_used(
    object_web: WebServer, variable: str, credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://{credentials}127.0.0.1:{object_web.port}")
    store = HttpStore("http://shards.example:81", READ)
    assert read(store, "x.tar", 5) == DATA[5:]
    assert store.head("x.tar").size == len(DATA)
    store.close()
    assert object_web.requests[0] == ("GET", "http://shards.example:81/x.tar")
    assert object_web.headers[0]["Host"] == "shards.example:81"
    expected = "Basic bWU6c2VAY3JldA==" if credentials else None
    assert [headers.get("Proxy-Authorization") for headers in object_web.headers] == [expected] * 2


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "127.0.0.1:{port}", "*"])
def test_no_proxy_is_respected(object_web: WebServer, no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", no_proxy.format(port=object_web.port))
    store = HttpStore(object_web.url, READ)
    assert read(store, "x.tar") == DATA
    store.close()
    assert object_web.requests == [("GET", "/x.tar")]


@pytest.fixture
def secure_web(certified: Certificates) -> Iterator[WebServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified.server, certified.server_key)
    with WebServer(tls=context) as server:
        server.objects["x.tar"] = DATA * 5
        yield server


def test_objects_are_read_over_tls(
    secure_web: WebServer, certified: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certified.ca)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certified.ca)
    store = HttpStore(secure_web.url, READ)
    assert read(store, "x.tar", 100, step=1 << 20) == (DATA * 5)[100:]
    assert store.head("x.tar").size == len(DATA * 5)
    secure_web.redirects["/down.tar"] = "http://127.0.0.1:1/x.tar"
    for ask in (store.open, store.head):
        with pytest.raises(StoreError, match="not followed"):
            ask("down.tar")
    store.close()


def test_an_untrusted_certificate_is_not_retried(secure_web: WebServer) -> None:
    store = HttpStore(secure_web.url, READ)
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        store.open("x.tar")
    assert not isinstance(caught.value, TransportError)
    store.close()


def test_a_forked_process_shares_no_connection(object_web: WebServer) -> None:
    store = HttpStore(object_web.url, READ)
    read(store, "x.tar")
    read(store, "x.tar")
    (kept,) = store._pool._pooled
    assert kept.peer == ("http", f"127.0.0.1:{object_web.port}")
    store._pool.forked()  # called in a forked child
    read(store, "x.tar")
    (other,) = store._pool._pooled
    assert other.peer == kept.peer
    assert other.connection is not kept.connection
    assert kept.connection.sock is None
    store.close()
