"""The embedded server answers plain requests, raw sockets, curl, AIStore's own client and webdataset."""

from __future__ import annotations

import gc
import http.client
import io
import json
import os
import shlex
import socket
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgpack
import pytest
import requests
import webdataset
import xxhash
from aistore.sdk import Client
from aistore.sdk.errors import AISError, ErrBckAlreadyExists, ErrBckNotFound, ErrObjNotFound
from aistore.sdk.retry_config import RetryConfig
from tenacity import Retrying, stop_after_attempt

from ais_tar2tf.cluster.server import serve
from ais_tar2tf.cluster.server.checksums import Checksums
from ais_tar2tf.cluster.server.lifecycle import Server
from ais_tar2tf.cluster.server.ranges import parse_range
from ais_tar2tf.cluster.server.refusals import RefusedError
from ais_tar2tf.cluster.server.transforming import Passage
from tests.support.leftovers import left_open, open_files

TIMEOUT = 20
TOKEN = "let-me-in"
BODY = bytes(range(256)) * 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bucket").mkdir(parents=True)
    (root / "bucket" / "shard.tar").write_bytes(BODY)
    return root


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    with serve(root) as server:
        yield server


@pytest.fixture
def locked(root: Path) -> Iterator[Server]:
    with serve(root, token=TOKEN) as server:
        yield server


def url(server: Server, name: str = "shard.tar", bucket: str = "bucket") -> str:
    return f"{server.url}/v1/objects/{bucket}/{quote(name)}"


def ask(method: str, address: str, **options: Any) -> requests.Response:
    return requests.request(method, address, timeout=TIMEOUT, **options)


def ask_raw(server_url: str, method: str, target: str, **headers: str) -> tuple[int, bytes]:
    """Send a request line exactly as given, because clients would resolve `..`."""
    connection = http.client.HTTPConnection(urlsplit(server_url).netloc, timeout=TIMEOUT)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for key, value in headers.items():
            connection.putheader(key, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def list_page(server: Server, bucket: str = "bucket", **value: Any) -> dict[str, Any]:
    body = {"action": "list", "value": value}
    response = ask("GET", f"{server.url}/v1/buckets/{bucket}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def list_names(server: Server, **value: Any) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        page = list_page(server, continuation_token=token, **value)
        names += [entry["name"] for entry in page["entries"] or ()]
        token = page["continuation_token"]
        if not token:
            return names


# Ranges, as pure code


@pytest.mark.parametrize(
    ("header", "size", "span"),
    [
        (None, 10, None),
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=2-5", 10, (2, 4)),
        ("bytes=7-", 10, (7, 3)),
        ("bytes=7-99", 10, (7, 3)),
        ("bytes=-3", 10, (7, 3)),
        ("bytes=-99", 10, (0, 10)),
        ("bytes=-0", 10, (10, 0)),
        (" bytes=1-2 ", 10, (1, 2)),
    ],
)
def test_range_is_a_span(header: str | None, size: int, span: tuple[int, int] | None) -> None:
    assert parse_range(header, size) == span


@pytest.mark.parametrize(
    "header",
    ["bytes=0-1,4-5", "bytes=10-", "bytes=10-12", "bytes=5-2", "bytes=-", "bytes=a-b", "lines=0-1", ""],
)
def test_range_that_cannot_be_served_is_416(header: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_range(header, 10)
    assert caught.value.status == 416


def test_range_of_an_empty_object_is_416() -> None:
    with pytest.raises(RefusedError):
        parse_range("bytes=0-", 0)


# The way from the proxy to the target


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("HEAD", 307), ("PUT", 307), ("DELETE", 307)])
def test_proxy_redirects_to_the_target_with_a_grant(server: Server, method: str, status: int) -> None:
    response = ask(method, url(server) + "?provider=ais", allow_redirects=False)
    where = urlsplit(response.headers["Location"])
    assert response.status_code == status
    assert f"http://{where.netloc}" == server.target_url != server.url
    assert where.path == "/v1/objects/bucket/shard.tar"
    provider, pid, utm = (part.split("=") for part in where.query.split("&"))
    assert provider == ["provider", "ais"]
    assert pid[0] == "pid"
    assert utm[0] == "utm"
    assert utm[1].isdecimal()


def test_object_is_still_there_after_a_redirected_delete_that_was_not_followed(server: Server, root: Path) -> None:
    ask("DELETE", url(server), allow_redirects=False)
    assert (root / "bucket" / "shard.tar").exists()


def test_target_answers_directly_without_tokens(server: Server) -> None:
    assert ask("GET", f"{server.target_url}/v1/objects/bucket/shard.tar").content == BODY


def test_requests_are_remembered_by_node(server: Server) -> None:
    ask("GET", url(server) + "?provider=ais", headers={"Range": "bytes=0-1"})
    proxy, target = list(server.requests)
    assert (proxy.node, proxy.method, proxy.path) == ("proxy", "GET", "/v1/objects/bucket/shard.tar")
    assert (proxy.query, proxy.range, proxy.authorized) == ("provider=ais", "bytes=0-1", False)
    assert target.node == "target"
    assert target.query.startswith("provider=ais&pid=p")
    assert server.requests.maxlen == 10_000


# Reading


def test_get_gives_the_object_and_its_checksum(server: Server) -> None:
    response = ask("GET", url(server))
    assert response.content == BODY
    assert [step.status_code for step in response.history] == [301]
    assert response.headers["Ais-Checksum-Type"] == "xxhash2"
    assert response.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(BODY)
    assert response.headers["Ais-Version"] == "1"
    assert response.headers["Content-Length"] == str(len(BODY))
    assert not {"ETag", "Last-Modified", "Accept-Ranges", "Content-Encoding"} & set(response.headers)


@pytest.mark.parametrize(
    ("header", "body", "where"),
    [
        ("bytes=3-9", BODY[3:10], f"bytes 3-9/{len(BODY)}"),
        ("bytes=-5", BODY[-5:], f"bytes {len(BODY) - 5}-{len(BODY) - 1}/{len(BODY)}"),
        ("bytes=10000-", BODY[10000:], f"bytes 10000-{len(BODY) - 1}/{len(BODY)}"),
    ],
)
def test_get_range(server: Server, header: str, body: bytes, where: str) -> None:
    response = ask("GET", url(server), headers={"Range": header})
    assert (response.status_code, response.content) == (206, body)
    assert response.headers["Content-Range"] == where
    assert response.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(BODY)


@pytest.mark.parametrize(("header", "where"), [("bytes=0-1,4-5", None), ("bytes=99999-", f"bytes */{len(BODY)}")])
def test_get_range_that_cannot_be_served(server: Server, header: str, where: str | None) -> None:
    response = ask("GET", url(server), headers={"Range": header})
    assert (response.status_code, response.json()["status"]) == (416, 416)
    assert response.headers.get("Content-Range") == where


def test_head_tells_size_and_place(server: Server) -> None:
    response = ask("HEAD", url(server), allow_redirects=True, headers={"Range": "bytes=0-1"})
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Content-Length"] == str(len(BODY))
    assert response.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(BODY)
    assert response.headers["Ais-Present"] == "true"
    assert response.headers["Ais-Location"].startswith("t[")


def test_empty_object(server: Server, root: Path) -> None:
    (root / "bucket" / "empty").touch()
    response = ask("GET", url(server, "empty"))
    assert (response.status_code, response.content, response.headers["Content-Length"]) == (200, b"", "0")
    assert ask("HEAD", url(server, "empty"), allow_redirects=True).headers["Content-Length"] == "0"


def test_connection_is_kept_between_objects(server: Server, root: Path) -> None:
    (root / "bucket" / "empty").touch()
    connection = http.client.HTTPConnection(urlsplit(server.target_url).netloc, timeout=TIMEOUT)
    try:
        connection.connect()
        before = connection.sock
        for method, name in [("GET", "shard.tar"), ("HEAD", "shard.tar"), ("GET", "empty"), ("GET", "none")]:
            connection.request(method, f"/v1/objects/bucket/{name}")
            connection.getresponse().read()
        assert connection.sock is before
    finally:
        connection.close()


@pytest.mark.parametrize(
    "name",
    ["a folder/ü/日本.tar", "50%.tar", "1+1.tar", "%2e%2e.tar", "a?b#c&d=e.tar", "quo'te\".tar", "back\\slash"],
)
def test_names_of_every_kind(server: Server, root: Path, name: str) -> None:
    put = ask("PUT", url(server, name), data=name.encode())
    assert put.status_code == 200, put.text
    assert (root / "bucket" / name).read_text() == name
    assert ask("GET", url(server, name)).content == name.encode()
    assert name in list_names(server)
    assert ask("DELETE", url(server, name)).status_code == 200
    assert name not in list_names(server)


def test_plus_in_a_path_is_a_plus(server: Server, root: Path) -> None:
    (root / "bucket" / "1+1").write_bytes(b"two")
    assert ask_raw(server.target_url, "GET", "/v1/objects/bucket/1+1") == (200, b"two")


def split_host(server_url: str) -> tuple[str, int]:
    parts = urlsplit(server_url)
    return str(parts.hostname), int(parts.port or 0)


# Writing


def test_put_by_hand_first_the_location_then_the_body(server: Server, root: Path) -> None:
    first = ask("PUT", url(server, "new/a.tar"), allow_redirects=False)
    assert first.status_code == 307
    assert not (root / "bucket" / "new").exists()
    second = ask("PUT", first.headers["Location"], data=BODY)
    assert second.status_code == 200
    assert second.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(BODY)
    assert (root / "bucket" / "new" / "a.tar").read_bytes() == BODY


def test_proxy_does_not_wait_for_a_body(server: Server) -> None:
    status, _ = ask_raw(server.url, "PUT", "/v1/objects/bucket/new", **{"Content-Length": "1000000"})
    assert status == 307


def test_put_that_follows_with_a_large_body(server: Server, root: Path) -> None:
    body = os.urandom(5_000_000) * 4
    assert ask("PUT", url(server, "large"), data=body).status_code == 200
    assert (root / "bucket" / "large").read_bytes() == body


def test_put_in_chunks_of_unknown_length(server: Server, root: Path) -> None:
    ask("PUT", f"{server.target_url}/v1/objects/bucket/chunks", data=iter([b"one", b"two"]))
    assert (root / "bucket" / "chunks").read_bytes() == b"onetwo"


def test_put_keeps_compressed_bytes_compressed(server: Server, root: Path) -> None:
    ask("PUT", url(server, "a.gz"), data=b"\x1f\x8bnot really", headers={"Content-Encoding": "gzip"})
    assert (root / "bucket" / "a.gz").read_bytes() == b"\x1f\x8bnot really"


def test_put_counts_versions(server: Server) -> None:
    assert ask("PUT", url(server, "new"), data=b"1").headers["Ais-Version"] == "1"
    assert ask("PUT", url(server, "new"), data=b"2").headers["Ais-Version"] == "2"
    assert ask("GET", url(server, "new")).headers["Ais-Version"] == "2"
    ask("DELETE", url(server, "new"))
    assert ask("PUT", url(server, "new"), data=b"3").headers["Ais-Version"] == "1"


def test_put_over_an_unread_file_is_its_second_version(server: Server) -> None:
    assert ask("PUT", url(server), data=b"2").headers["Ais-Version"] == "2"


def test_upload_that_breaks_off_leaves_nothing(server: Server, root: Path) -> None:
    before = sorted(root.rglob("*"))
    with socket.create_connection(split_host(server.target_url), TIMEOUT) as plain:
        plain.sendall(b"PUT /v1/objects/bucket/new/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        plain.sendall(b"Expect: 100-continue\r\n\r\n")
        assert plain.recv(1024).startswith(b"HTTP/1.1 100 ")  # the upload has begun
        plain.sendall(b"half")
        assert list((root / "bucket" / "new").iterdir())
        assert list_names(server) == ["shard.tar"]
    server.close()
    assert sorted(root.rglob("*")) == before


def test_object_and_folder_of_one_name_conflict(server: Server, root: Path) -> None:
    assert ask("PUT", url(server, "shard.tar/inside"), data=b"x").status_code == 409
    (root / "bucket" / "folder").mkdir()
    (root / "bucket" / "folder" / "inside").touch()
    assert ask("PUT", url(server, "folder"), data=b"x").status_code == 409
    assert ask("GET", url(server, "folder")).status_code == 404
    assert list_names(server) == ["folder/inside", "shard.tar"]


def test_delete_takes_the_folders_that_it_empties(server: Server, root: Path) -> None:
    ask("PUT", url(server, "a/b/c"), data=b"x")
    ask("PUT", url(server, "a/d"), data=b"x")
    assert ask("DELETE", url(server, "a/b/c")).status_code == 200
    assert sorted(path.name for path in (root / "bucket").iterdir()) == ["a", "shard.tar"]
    assert sorted(path.name for path in (root / "bucket" / "a").iterdir()) == ["d"]
    assert ask("DELETE", url(server, "a/b/c")).status_code == 404
    ask("DELETE", url(server, "a/d"))
    assert ask("PUT", url(server, "a"), data=b"x").status_code == 200


# Checksums and versions of files that change


def test_a_change_outside_of_the_server_is_a_new_version(server: Server, root: Path) -> None:
    assert ask("GET", url(server)).headers["Ais-Version"] == "1"
    (root / "bucket" / "shard.tar").write_bytes(b"changed")
    response = ask("GET", url(server))
    assert (response.content, response.headers["Ais-Version"]) == (b"changed", "2")
    assert response.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(b"changed")


def test_a_change_in_place_right_after_a_put_is_detected(server: Server, root: Path) -> None:
    ask("PUT", url(server, "new"), data=b"old!")
    (root / "bucket" / "new").write_bytes(b"new!")
    response = ask("GET", url(server, "new"))
    assert (response.content, response.headers["Ais-Version"]) == (b"new!", "2")
    assert response.headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(b"new!")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record each call that hashes a file."""
    calls: list[int] = []
    original: Callable[[Checksums, int], str] = Checksums._hash

    def counting(self: Checksums, descriptor: int) -> str:
        calls.append(descriptor)
        return original(self, descriptor)

    monkeypatch.setattr(Checksums, "_hash", counting)
    return calls


def test_content_is_hashed_once(server: Server, root: Path, hashed: list[int]) -> None:
    os.utime(root / "bucket" / "shard.tar", ns=(10**18, 10**18))
    for header in ("bytes=0-1", "bytes=5-"):
        ask("GET", url(server), headers={"Range": header})
    ask("HEAD", url(server), allow_redirects=True)
    assert len(hashed) == 1


def test_checksum_of_a_file_as_young_as_the_clock_is_not_trusted(
    server: Server, root: Path, hashed: list[int]
) -> None:
    future = 2 * 10**18
    os.utime(root / "bucket" / "shard.tar", ns=(future, future))
    ask("GET", url(server))
    ask("GET", url(server))
    assert len(hashed) == 2


def test_a_put_object_is_not_hashed_again(server: Server, hashed: list[int]) -> None:
    ask("PUT", url(server, "new"), data=BODY)
    assert ask("GET", url(server, "new")).headers["Ais-Checksum-Value"] == xxhash.xxh64_hexdigest(BODY)
    assert hashed == []


def test_checksums_are_bounded(root: Path) -> None:
    with ThreadPoolExecutor(1) as pool, serve(root):
        sums = Checksums(pool, entries=2)
        contents = [contents_of(root, name) for name in "abc"]
        for content in contents:
            sums.remember(content, content.path)
        assert [sums.cached(content) for content in contents] == [None, contents[1].path, contents[2].path]


def test_a_checksum_that_cannot_be_started_leaves_no_file_open(root: Path) -> None:
    """The pool is shut down when the server closes."""
    content = contents_of(root, "a")
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    sums = Checksums(pool)
    with Path(content.path).open("rb") as file:
        before = open_files()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="shutdown"):
                sums.start(file.fileno(), content)
        assert left_open(before) == []


def contents_of(root: Path, name: str) -> Any:
    from ais_tar2tf.cluster.server.checksums import FileIdentity

    path = root / "bucket" / name
    path.write_text(name)
    return FileIdentity.from_stat(str(path), path.stat())


def test_twenty_concurrent_readers(server: Server, root: Path, hashed: list[int]) -> None:
    body = os.urandom(1 << 20)
    path = root / "bucket" / "wide"
    path.write_bytes(body)
    os.utime(path, ns=(10**18, 10**18))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask("GET", url(server, "wide")).content, range(20)))
    assert answers == [body] * 20
    assert len(hashed) == 1


# Buckets


def test_bucket_from_making_to_erasing(server: Server, root: Path) -> None:
    address = f"{server.url}/v1/buckets/new"
    assert ask("HEAD", address).status_code == 404
    assert ask("POST", address, json={"action": "create-bck"}).status_code == 200
    again = ask("POST", address, json={"action": "create-bck"})
    assert (again.status_code, again.json()["tcode"]) == (409, "ErrBucketAlreadyExists")
    assert json.loads(ask("HEAD", address).headers["Ais-Bucket-Props"])["provider"] == "ais"
    ask("PUT", url(server, "deep/er", "new"), data=b"x")
    assert [bucket["name"] for bucket in ask("GET", f"{server.url}/v1/buckets").json()] == ["bucket", "new"]
    assert ask("DELETE", address, json={"action": "destroy-bck"}).status_code == 200
    assert ask("DELETE", address, json={"action": "destroy-bck"}).status_code == 404
    assert [path.name for path in root.iterdir()] == ["bucket"]


@pytest.mark.parametrize("name", ["..", "a..b", ".hidden", "%00", "sp%20ace", "a" * 65, "%2e%2e"])
def test_invalid_bucket_names(server: Server, root: Path, name: str) -> None:
    before = sorted(root.parent.rglob("*"))
    for method in ("POST", "DELETE", "GET"):
        status, _ = ask_raw(server.url, method, f"/v1/buckets/{name}")
        assert status == 400
    assert ask_raw(server.url, "GET", f"/v1/objects/{name}/x")[0] == 400
    assert sorted(root.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("POST", {"action": "copy-bck"}, 501),
        ("DELETE", {"action": "evict-remote-bck"}, 501),
        ("GET", {"action": "summary-bck"}, 501),
        ("POST", {}, 400),
        ("POST", [], 400),
        ("PUT", {}, 405),
    ],
)
def test_bucket_calls_that_are_not_served(server: Server, method: str, body: object, status: int) -> None:
    assert ask(method, f"{server.url}/v1/buckets/bucket", json=body).status_code == status
    assert ask("GET", url(server)).status_code == 200


def test_body_that_is_not_json(server: Server) -> None:
    assert ask("GET", f"{server.url}/v1/buckets/bucket", data=b"{").status_code == 400


# Listings

TREE = ["a", "a-b", "a.tar", "b/c", "b/d/e", "b.x", "b0", "empty", "z/1", "z/2", "é"]


@pytest.fixture
def tree(server: Server, root: Path) -> Server:
    (root / "bucket" / "shard.tar").unlink()
    for name in TREE:
        path = root / "bucket" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name == "empty" else name)
    return server


def test_listing_is_sorted_by_whole_names(tree: Server) -> None:
    assert list_names(tree) == sorted(TREE)


@pytest.mark.parametrize("size", range(1, len(TREE) + 2))
def test_listing_in_pages_of_any_size(tree: Server, size: int) -> None:
    assert list_names(tree, pagesize=size) == sorted(TREE)


@pytest.mark.parametrize("prefix", ["", "a", "b", "b/", "b/d", "b/d/e", "z/2", "é", "nothing", "b/c/"])
def test_listing_with_a_prefix(tree: Server, prefix: str) -> None:
    assert list_names(tree, prefix=prefix, pagesize=2) == sorted(name for name in TREE if name.startswith(prefix))


@pytest.mark.parametrize("after", ["", "a", "b", "b/", "b/c", "b/d/e", "b0", "zz"])
def test_listing_that_starts_after_a_name(tree: Server, after: str) -> None:
    page = list_page(tree, start_after=after)
    assert [entry["name"] for entry in page["entries"]] == sorted(name for name in TREE if name > after)


def test_last_page_of_a_listing_can_be_empty(tree: Server) -> None:
    page = list_page(tree, pagesize=len(TREE))
    assert page["continuation_token"] == max(TREE)
    last = list_page(tree, pagesize=len(TREE), continuation_token=page["continuation_token"], uuid=page["uuid"])
    assert (last["entries"], last["continuation_token"], last["uuid"]) == (None, "", page["uuid"])


def test_listed_sizes_are_strings_and_zero_is_left_out(tree: Server) -> None:
    entries = {entry["name"]: entry for entry in list_page(tree)["entries"]}
    assert entries["a.tar"] == {"name": "a.tar", "size": "5", "flags": 64}
    assert entries["empty"] == {"name": "empty", "flags": 64}


def test_listed_props(server: Server) -> None:
    ask("PUT", url(server), data=b"second")
    (entry,) = list_page(server, props="name, size,checksum,version,copies,location,atime")["entries"]
    assert entry["checksum"] == xxhash.xxh64_hexdigest(b"second")
    assert (entry["version"], entry["size"], entry["copies"]) == ("2", "6", 1)
    assert entry["location"].startswith("t[")
    assert list_page(server, props="name")["entries"] == [{"name": "shard.tar", "flags": 64}]


def test_listing_as_msgpack(tree: Server) -> None:
    body = {"action": "list", "value": {"prefix": "a", "pagesize": 2, "flags": "0"}}
    response = ask("GET", f"{tree.url}/v1/buckets/bucket", json=body, headers={"Accept": "application/msgpack"})
    page = msgpack.unpackb(response.content)
    assert response.headers["Content-Type"] == "application/msgpack"
    assert page.pop("UUID")
    entries = [{"n": "a", "s": 1, "f": 64}, {"n": "a-b", "s": 3, "f": 64}]
    assert page == {"ContinuationToken": "a-b", "Entries": entries, "Flags": 0}


def test_listing_without_a_body(tree: Server) -> None:
    assert len(ask("GET", f"{tree.url}/v1/buckets/bucket").json()["entries"]) == len(TREE)


@pytest.mark.parametrize(
    ("value", "status"), [({"pagesize": -1}, 400), ({"pagesize": "many"}, 400), ({"flags": "2048"}, 501), (7, 400)]
)
def test_listings_that_are_not_served(server: Server, value: object, status: int) -> None:
    body = {"action": "list", "value": value}
    assert ask("GET", f"{server.url}/v1/buckets/bucket", json=body).status_code == status


# Refusals


def test_missing_object(server: Server) -> None:
    response = ask("GET", url(server, "none"))
    error = response.json()
    node = f"t[{next(iter(ask('GET', f'{server.url}/v1/daemon?what=smap').json()['tmap']))}]"
    assert response.status_code == error.pop("status") == 404
    assert error.pop("remote_addr").startswith("127.0.0.1:")
    assert error == {
        "tcode": "ErrNotFound",
        "message": f"{node}: ais://bucket/none does not exist",
        "method": "GET",
        "url_path": "/v1/objects/bucket/none",
        "caller": "",
        "node": node,
    }


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_missing_bucket(server: Server, method: str) -> None:
    response = ask(method, url(server, "x", "none"))
    assert (response.status_code, response.json()["tcode"]) == (404, "ErrBckNotFound")
    assert response.json()["node"].startswith("p[")


def test_head_of_a_missing_object_explains_in_a_header(server: Server) -> None:
    response = ask("HEAD", url(server, "näme"), allow_redirects=True)
    assert (response.status_code, response.content) == (404, b"")
    assert json.loads(response.headers["Hdr-Error"])["tcode"] == "ErrNotFound"


@pytest.mark.parametrize("provider", ["aws", "gcp", "nonsense"])
def test_other_providers_are_400(server: Server, provider: str) -> None:
    for address in (url(server), f"{server.url}/v1/buckets/bucket", f"{server.url}/v1/buckets"):
        assert ask("GET", f"{address}?provider={provider}").status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 400),
        ("GET", "/v1/nonsense", 400),
        ("GET", "/s3/bucket/shard.tar", 501),
        ("GET", "/v1/download", 501),
        ("GET", "/v1/daemon?what=config", 501),
        ("POST", "/v1/health", 405),
        ("GET", "/v1/objects/bucket", 400),
        ("GET", "/v1/objects/bucket/", 400),
        ("POST", "/v1/objects/bucket/shard.tar", 501),
        ("GET", "/v1/objects/bucket/shard.tar?etl_pipeline=a", 501),
        ("PUT", "/v1/objects/bucket/shard.tar?append_type=append", 501),
        ("GET", "/v1/objects/bucket/%ff", 400),
        ("GET", "/v1/objects/bucket/shard.tar?namespace=@other%23", 501),
        ("GET", "/v1/buckets/bucket/prefix", 501),
    ],
)
def test_unsupported_requests(server: Server, method: str, path: str, status: int) -> None:
    for node in (server.url, server.target_url):
        if node == server.target_url and "/v1/buckets" in path:
            status = 501  # a target does not manage buckets
        answer, body = ask_raw(node, method, path)
        assert answer == status
        assert json.loads(body)["status"] == status


# Paths that must not lead out


@pytest.fixture
def secret(root: Path) -> Path:
    secret = root.parent / "secret"
    secret.write_text("secret")
    (root / "beside").write_text("secret")
    return secret


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "bucket/../../secret",
        "bucket/../beside",
        "bucket/%2e%2e/%2e%2e/secret",
        "bucket/..%2f..%2fsecret",
        "bucket/a/../../../secret",
        "bucket//SECRET",
        "bucket/%2fSECRET",
        "bucket/./shard.tar",
        "bucket/shard.tar/",
        "bucket/a%00b",
        "bucket/shard.tar%00",
        "../secret",
        "%2e%2e/secret",
        "./bucket/shard.tar",
        "bucket/.~ais-0",
    ],
)
def test_traversal(server: Server, secret: Path, method: str, path: str) -> None:
    before = [(path, path.lstat().st_mtime_ns) for path in sorted(secret.parent.rglob("*"))]
    target = f"/v1/objects/{path.replace('SECRET', quote(str(secret)).lstrip('/'))}"
    status, body = ask_raw(server.target_url, method, target, **{"Content-Length": "0"})
    assert status in (400, 404)
    assert b'"secret"' not in body
    assert ask_raw(server.url, method, target, **{"Content-Length": "0"})[0] in (301, 307, 400, 404)
    assert [(path, path.lstat().st_mtime_ns) for path in sorted(secret.parent.rglob("*"))] == before


def test_very_long_name(server: Server) -> None:
    assert ask("GET", url(server, "a" * 300)).status_code in (400, 404)
    assert ask("PUT", url(server, "a" * 300), data=b"x").status_code == 400
    assert ask("GET", url(server, "/".join(["é" * 100] * 18))).status_code == 404


def test_links_that_leave_the_root_do_not_exist(server: Server, root: Path, secret: Path) -> None:
    (root / "bucket" / "out").symlink_to(secret)
    (root / "bucket" / "up").symlink_to(secret.parent)
    (root / "outside").symlink_to(secret.parent)
    for name in ("out", "up/secret"):
        assert ask("GET", url(server, name)).status_code == 404
        assert ask("PUT", url(server, name), data=b"x").status_code == 404
        assert ask("DELETE", url(server, name)).status_code == 404
    assert ask("GET", url(server, "secret", "outside")).status_code == 404
    assert list_names(server) == ["shard.tar"]
    assert [bucket["name"] for bucket in ask("GET", f"{server.url}/v1/buckets").json()] == ["bucket"]
    assert secret.read_text() == "secret"


def test_links_that_stay_inside_are_followed(server: Server, root: Path) -> None:
    (root / "bucket" / "link.tar").symlink_to("shard.tar")
    (root / "bucket" / "loop").symlink_to("loop")
    (root / "bucket" / "circle").symlink_to(".")
    assert ask("GET", url(server, "link.tar")).content == BODY
    assert ask("GET", url(server, "loop")).status_code == 404
    assert list_names(server) == ["link.tar", "shard.tar"]


def test_pipe_is_no_object(server: Server, root: Path) -> None:
    os.mkfifo(root / "bucket" / "pipe")
    assert ask("GET", url(server, "pipe")).status_code == 404
    assert list_names(server) == ["shard.tar"]


# Tokens


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"])
def test_proxy_requires_the_token(locked: Server, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    for address in (url(locked), f"{locked.url}/v1/buckets", f"{locked.url}/v1/daemon?what=smap"):
        response = ask("GET", address, headers=headers)
        assert (response.status_code, response.json()["status"]) == (401, 401)
        assert TOKEN not in response.text
    assert ask("GET", f"{locked.url}/v1/health").status_code == 200


def test_token_gets_a_grant_and_the_grant_gets_the_object(locked: Server) -> None:
    first = ask("GET", url(locked), headers={"Authorization": f"Bearer {TOKEN}"}, allow_redirects=False)
    assert first.status_code == 301
    assert TOKEN not in first.headers["Location"]
    assert ask("GET", first.headers["Location"]).content == BODY
    assert [seen.authorized for seen in locked.requests] == [True, False]


@pytest.mark.parametrize("query", ["", "?pid=&utm=1", "?pid=p0&utm=1", "?pid={pid}", "?pid={pid}&utm=x"])
def test_target_requires_a_grant(locked: Server, query: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    granted = ask("GET", url(locked), headers=headers, allow_redirects=False).headers["Location"]
    pid = granted.partition("pid=")[2].partition("&")[0]
    address = f"{locked.target_url}/v1/objects/bucket/shard.tar{query.format(pid=pid)}"
    response = ask("GET", address, headers=headers)
    assert (response.status_code, response.json()["node"][:2]) == (403, "t[")


# Other clients


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    yield from make_client(server)


def make_client(server: Server, token: str | None = None) -> Iterator[Client]:
    config = RetryConfig.default()
    config.network_retry = Retrying(stop=stop_after_attempt(1), reraise=True)
    client = Client(server.url, retry_config=config, token=token)
    yield client
    client._request_client.session_manager.session.close()  # the client offers no close of its own


def test_sdk_bucket(client: Client) -> None:
    bucket = client.bucket("made").create()
    with pytest.raises(ErrBckAlreadyExists):
        bucket.create()
    assert [model.name for model in client.cluster().list_buckets()] == ["bucket", "made"]
    assert "Ais-Bucket-Props" in bucket.head()
    bucket.delete()
    with pytest.raises(ErrBckNotFound):
        bucket.delete()
    with pytest.raises(ErrBckNotFound):
        bucket.list_all_objects()


def test_sdk_object(client: Client, tmp_path: Path) -> None:
    thing = client.bucket("bucket").object("a folder/ünï+%.tar")
    thing.get_writer().put_content(BODY)
    attributes = thing.head("name,size,version,checksum,location")
    assert (attributes.size, attributes.present, attributes.obj_version) == (len(BODY), True, "1")
    assert (attributes.checksum_type, attributes.checksum_value) == ("xxhash2", xxhash.xxh64_hexdigest(BODY))
    assert thing.get_reader().read_all() == BODY
    assert thing.get_reader(byte_range="bytes=5-9").read_all() == BODY[5:10]
    assert thing.get_reader(byte_range="bytes=-7").read_all() == BODY[-7:]
    assert b"".join(thing.get_reader(chunk_size=1000)) == BODY
    assert thing.get_reader(direct=True).read_all() == BODY
    with thing.get_reader().as_file() as file:
        assert file.read() == BODY
    file = tmp_path / "large"
    file.write_bytes(BODY * 100)
    thing.get_writer().put_file(file)
    assert thing.props.obj_version == "2"
    thing.delete()
    with pytest.raises(ErrObjNotFound):
        thing.get_reader().read_all()
    with pytest.raises(ErrObjNotFound):
        thing.delete()
    with pytest.raises(AISError, match="STATUS:404"):  # the client does not read Hdr-Error
        thing.head()


def test_sdk_listing_over_pages(client: Client, root: Path) -> None:
    for number in range(25):
        (root / "bucket" / f"page-{number:02}").write_bytes(b"x" * number)
    bucket = client.bucket("bucket")
    expected = [(f"page-{number:02}", number) for number in range(25)]
    every = bucket.list_all_objects(prefix="page-", page_size=5)
    assert [(entry.name, entry.size) for entry in every] == expected
    lazily = bucket.list_objects_iter(prefix="page-", page_size=10, props="name,size,checksum")
    entries = list(lazily)
    assert [(entry.name, entry.size) for entry in entries] == expected
    assert entries[3].checksum == xxhash.xxh64_hexdigest(b"xxx")
    assert all(entry.is_cached() and entry.is_ok() for entry in entries)
    assert len(bucket.list_objects(page_size=3).entries) == 3


def test_sdk_cluster(client: Client, server: Server) -> None:
    info = client.cluster().get_info()
    assert info.proxy_si.public_net.direct_url == server.url
    assert [node.public_net.direct_url for node in info.tmap.values()] == [server.target_url]
    assert client.cluster().is_ready()


def test_sdk_with_a_token(locked: Server) -> None:
    for client in make_client(locked, TOKEN):
        thing = client.bucket("bucket").object("new")
        thing.get_writer().put_content(b"x")
        assert thing.get_reader().read_all() == b"x"
    for client in make_client(locked):
        with pytest.raises(AISError, match="STATUS:401"):
            client.bucket("bucket").object("new").get_reader().read_all()


@pytest.fixture
def served_records(root: Path) -> list[dict[str, Any]]:
    """Write a shard at bucket/records.tar, and return its records."""
    records = [{"__key__": f"r{number:03}", "cls": b"%d" % number, "bin": BODY} for number in range(20)]
    with tarfile.open(root / "bucket" / "records.tar", "w") as archive:
        for record in records:
            for field in ("cls", "bin"):
                member = tarfile.TarInfo(f"{record['__key__']}.{field}")
                member.size = len(record[field])
                archive.addfile(member, io.BytesIO(record[field]))
    return records


@pytest.mark.parametrize("form", ["pipe:curl -s -L {}", "{}"])
def test_webdataset(server: Server, served_records: list[dict[str, Any]], form: str) -> None:
    address = form.format(shlex.quote(url(server, "records.tar")) if "pipe" in form else url(server, "records.tar"))
    samples = webdataset.WebDataset(address, shardshuffle=False)
    assert [{key: sample[key] for key in served_records[0]} for sample in samples] == served_records


def curl(*arguments: str) -> bytes:
    return subprocess.run(["curl", "-sS", "-L", *arguments], check=True, capture_output=True, timeout=200).stdout


def test_curl(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "up"
    file.write_bytes(BODY * 300)  # large enough that curl waits for "100 Continue"
    curl("-T", str(file), url(server, "from/curl"))
    assert curl(url(server, "from/curl")) == BODY * 300
    assert curl("-r", "10-19", url(server, "from/curl")) == BODY[10:20]


# Start and end


@pytest.fixture
def no_server_left() -> Iterator[None]:
    gc.collect()
    threads, files = set(threading.enumerate()), open_files()
    yield
    assert set(threading.enumerate()) <= threads
    assert left_open(files) == []


def test_close_leaves_no_thread_and_no_socket(no_server_left: None, root: Path) -> None:
    server = serve(root)
    with requests.Session() as session:
        assert session.get(url(server), timeout=TIMEOUT).content == BODY
        server.close()  # although the session has idle connections
        server.close()
        with pytest.raises(requests.ConnectionError):
            session.get(url(server), timeout=TIMEOUT)


def test_close_does_not_wait_for_a_client_that_does_not_read(no_server_left: None, root: Path) -> None:
    with (root / "bucket" / "large").open("wb") as file:
        file.truncate(200_000_000)
    with serve(root) as server, socket.create_connection(split_host(server.target_url), TIMEOUT) as stalled:
        stalled.sendall(b"GET /v1/objects/bucket/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stalled.recv(12) == b"HTTP/1.1 200"
        server.close()


def test_client_that_leaves_early_is_not_an_error(
    no_server_left: None, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (root / "bucket" / "large").open("wb") as file:
        file.truncate(200_000_000)
    with serve(root) as server:
        with socket.create_connection(split_host(server.target_url), TIMEOUT) as leaving:
            leaving.sendall(b"GET /v1/objects/bucket/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert leaving.recv(12) == b"HTTP/1.1 200"
        assert ask("GET", url(server)).content == BODY
    assert caplog.records == []


def test_interpreter_ends_without_close(root: Path) -> None:
    code = f"from ais_tar2tf.cluster.server import serve; print(serve({str(root)!r}).url)"
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", code]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    assert ended.stdout.startswith("http://127.0.0.1:")
    assert ended.stderr == ""


def test_two_concurrent_servers(no_server_left: None, root: Path) -> None:
    with serve(root) as one, serve(root) as two:
        assert one.url != two.url
        assert ask("GET", url(one)).content == ask("GET", url(two)).content == BODY


def test_port_can_be_chosen_and_is_free_again(no_server_left: None, root: Path) -> None:
    with serve(root) as server:
        port = urlsplit(server.url).port
        assert port is not None
        with pytest.raises(OSError, match="in use"):
            serve(root, port=port)
    with serve(root, port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert ask("GET", url(server)).content == BODY


def test_host_can_be_every_interface(no_server_left: None, root: Path) -> None:
    with serve(root, host="0.0.0.0") as server:  # noqa: S104
        assert server.url.startswith("http://127.0.0.1:")
        assert ask("GET", url(server)).content == BODY


def test_directory_must_be_there(no_server_left: None, tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="not a directory"):
        serve(tmp_path / "none")


@pytest.mark.parametrize("answered", [True, False])
def test_a_client_that_leaves_early_leaves_no_connection_to_a_transformer(root: Path, answered: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with serve(root, transformers={"slow": url}) as server:
            target = urlsplit(server.target_url)
            client = socket.create_connection((target.hostname or "", target.port or 0), TIMEOUT)
            client.sendall(b"GET /v1/objects/bucket/shard.tar?etl_name=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            transformer, _ = listener.accept()
            with transformer:
                transformer.settimeout(TIMEOUT)
                received = b""
                while not received.endswith(BODY):
                    received += transformer.recv(65536)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                client.close()
                if answered:
                    transformer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                else:
                    server.close()
                assert transformer.recv(1) == b""


def test_a_transfer_that_was_closed_before_it_began_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(BODY)
    with socket.create_server(("127.0.0.1", 0)) as listener, path.open("rb", buffering=0) as file:
        passage = Passage(f"http://127.0.0.1:{listener.getsockname()[1]}")
        passage.close()
        with pytest.raises(RefusedError, match="does not answer"):
            passage.begin("bucket/shard", file, len(BODY), "")
        listener.settimeout(TIMEOUT)
        transformer, _ = listener.accept()
        with transformer:
            transformer.settimeout(TIMEOUT)
            assert transformer.recv(1) == b""
