"""The embedded server and malicious clients: grants, hosts, origins, and bounds on resources."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import socket
import struct
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.cluster.server import connections, serve
from ais_tar2tf.cluster.server.grants import LIFETIME, Grants
from ais_tar2tf.cluster.server.lifecycle import Server
from ais_tar2tf.cluster.server.origins import foreign
from ais_tar2tf.errors import AccessDenied, OptionError, StoreError
from tests.support import shards as made

TOKEN = "let-me-in"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
TIMEOUT = 30


@pytest.fixture
def guarded_root(tmp_path: Path) -> Path:
    bucket = tmp_path / "root" / "bucket"
    bucket.mkdir(parents=True)
    (bucket / "a.tar").write_bytes(made.tar([("r/0", {"cls": b"1"})]))
    (bucket / "b.tar").write_bytes(b"another")
    return bucket.parent


@pytest.fixture
def guarded_server(guarded_root: Path) -> Iterator[Server]:
    with serve(guarded_root) as server:
        yield server


@pytest.fixture
def guarded_locked(guarded_root: Path) -> Iterator[Server]:
    with serve(guarded_root, token=TOKEN) as server:
        yield server


def granted(server: Server, method: str = "GET", name: str = "a.tar", query: str = "") -> str:
    """Return the URL to which the proxy redirects."""
    address = f"{server.url}/v1/objects/bucket/{quote(name)}{query}"
    answer = requests.request(method, address, headers=BEARER, allow_redirects=False, timeout=TIMEOUT)
    assert answer.status_code in (301, 307), answer.text
    return answer.headers["Location"]


def status(method: str, url: str, **options: Any) -> int:
    return requests.request(method, url, timeout=TIMEOUT, **options).status_code


# Grants


def test_knowing_the_names_of_all_nodes_grants_no_access(guarded_locked: Server) -> None:
    """Refusals and the cluster's map contain the proxy's name, which grants nothing."""
    refusal = requests.get(f"{guarded_locked.url}/v1/buckets", timeout=TIMEOUT).json()
    proxy = refusal["node"].removeprefix("p[").removesuffix("]")
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        address = f"{guarded_locked.target_url}/v1/objects/bucket/a.tar?pid={proxy}&utm={time.time_ns()}"
        assert status(method, address) == 403
    assert status("GET", f"{guarded_locked.target_url}/v1/daemon?what=smap&pid={proxy}&utm=1") == 403


@pytest.mark.parametrize(("given", "why"), [("wrong", "another token is required"), (None, "no token came")])
def test_a_client_without_the_right_token_gets_an_explanation(
    guarded_locked: Server, given: str | None, why: str
) -> None:
    for url in ("ais://bucket/a.tar", "ais://bucket/"):
        with pytest.raises(AccessDenied) as refused, t2t.open(url, endpoint=guarded_locked.url, token=given) as src:
            list(src.records())
        assert f"{why}: give the one that the server was started with, by t2t.serve(token=…)" in str(refused.value)
        assert TOKEN not in str(refused.value)


def test_a_token_may_end_with_a_newline_and_is_one_word(guarded_root: Path) -> None:
    with serve(guarded_root, token=f"{TOKEN}\n") as server:
        assert len(list(t2t.open("ais://bucket/a.tar", endpoint=server.url, token=f"{TOKEN}\n").records())) == 1
    for bad in ("", "two words", "Bearer x", "ü"):
        with pytest.raises(OptionError, match="token is one word of ASCII without blanks"):
            serve(guarded_root, token=bad)
    for bad in ("Bearer x", "two words"):
        with pytest.raises(
            StoreError, match="a token is one word of printable ASCII characters, without 'Bearer' before it"
        ):
            t2t.open("ais://bucket/a.tar", endpoint="http://127.0.0.1:1", token=bad)


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_an_invalid_port_is_refused(guarded_root: Path, port: int) -> None:
    with pytest.raises(OptionError, match=f"port is a number from 1 to 65535, or 0 for a free one, not {port}"):
        serve(guarded_root, port=port)


def test_a_grant_is_for_one_method_one_object_and_one_query(guarded_locked: Server) -> None:
    address = granted(guarded_locked, query="?archpath=r/0.cls")
    assert requests.get(address, timeout=TIMEOUT).content == b"1"
    assert status("DELETE", address) == 403
    assert status("PUT", address, data=b"replaced") == 403
    assert status("GET", address.replace("a.tar", "b.tar")) == 403
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    for name, value in (("archpath", ""), ("utm", "1"), ("pid", "p0"), ("etl_name", "x"), ("grant", "")):
        changed = urlunsplit(parts._replace(query=urlencode({**query, name: value})))
        assert status("GET", changed) == 403, name
    expiry, _, signature = query["grant"].partition(".")
    for forged in (f"{int(expiry) + 1}.{signature}", f"{expiry}.{'0' * 64}", f"{expiry}.", "9" * 5000 + ".x", "a.b"):
        assert status("GET", urlunsplit(parts._replace(query=urlencode({**query, "grant": forged})))) == 403
    assert requests.get(address, timeout=TIMEOUT).content == b"1"


def test_a_grant_of_another_server_is_refused(guarded_locked: Server, guarded_root: Path) -> None:
    address = urlsplit(granted(guarded_locked))
    with serve(guarded_root, token=TOKEN) as other:
        assert status("GET", urlunsplit(address._replace(netloc=urlsplit(other.target_url).netloc))) == 403


def test_a_proxy_accepts_no_grants(guarded_locked: Server) -> None:
    address = f"{guarded_locked.url}/v1/objects/bucket/a.tar?grant=1.2"
    assert status("GET", address, headers=BEARER, allow_redirects=False) == 400


@given(
    st.sampled_from(["GET", "PUT"]),
    st.text(max_size=20),
    st.lists(st.tuples(st.text(max_size=5).filter(lambda name: name != "grant"), st.text(max_size=5)), max_size=4),
)
def test_a_signature_is_valid_only_for_the_signed_request(method: str, path: str, query: list[Any]) -> None:
    now = [1_000.0]
    grants = Grants(clock=lambda: now[0])
    grant = ("grant", grants.sign(method, path, query))
    assert grants.allows(method, path, [grant, *reversed(query)])
    assert not grants.allows("DELETE", path, [*query, grant])
    assert not grants.allows(method, f"{path}x", [*query, grant])
    assert not grants.allows(method, path, [*query, ("x", ""), grant])
    assert not grants.allows(method, path, query)
    assert not grants.allows(method, path, [*query, ("grant", "9999999999.\udcff")])  # bytes that are not UTF-8
    now[0] += LIFETIME + 1
    assert not grants.allows(method, path, [*query, grant])


# Hosts and origins


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Host": "127.0.0.1:80"}, False),
        ({"Host": "localhost:80"}, False),
        ({"Host": "LOCALHOST."}, False),
        ({"Host": "[::1]:80"}, False),
        ({"Host": "10.1.2.3"}, False),
        ({"Host": "mine"}, False),
        ({"Host": "evil.example"}, True),
        ({"Host": "127.0.0.1.evil.example"}, True),
        ({"Host": "localhost.evil.example"}, True),
        ({"Host": "[::1"}, True),
        ({"Host": "mine", "Origin": "http://mine"}, False),
        ({"Host": "mine:1", "Origin": "http://mine:1"}, False),
        ({"Host": "mine:1", "Origin": "http://mine:2"}, True),
        ({"Host": "127.0.0.1", "Origin": "https://evil.example"}, True),
        ({"Host": "127.0.0.1", "Origin": "null"}, True),
        ({"Origin": "http://mine"}, True),
        ({"Host": "127.0.0.1", "Sec-Fetch-Site": "cross-site"}, True),
        ({"Host": "127.0.0.1", "Sec-Fetch-Site": "same-origin"}, False),
    ],
)
def test_hosts_and_origins(headers: dict[str, str], refused: bool) -> None:
    assert bool(foreign(headers, {"mine"})) is refused


def test_a_web_page_cannot_use_the_server(guarded_server: Server) -> None:
    bucket = f"{guarded_server.url}/v1/buckets/made"
    body = json.dumps({"action": "create-bck"})
    assert status("POST", bucket, data=body, headers={"Origin": "http://evil.example"}) == 403
    assert status("POST", bucket, data=body, headers={"Host": "evil.example"}) == 403
    assert (
        status("PUT", f"{guarded_server.target_url}/v1/objects/bucket/x", data=b"", headers={"Host": "evil.example"})
        == 403
    )
    assert status("HEAD", bucket) == 404
    assert status("POST", bucket, data=body) == 200


def test_a_name_that_is_allowed_is_answered(guarded_root: Path) -> None:
    with serve(guarded_root, hosts=["Data.Example"]) as server:
        assert status("GET", f"{server.url}/v1/buckets", headers={"Host": "data.example:80"}) == 200
        assert status("GET", f"{server.url}/v1/buckets", headers={"Host": "other.example"}) == 403


# Bounds


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), TIMEOUT)


def until_closed(wire: socket.socket) -> bytes:
    received = b""
    try:
        while piece := wire.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_endless_headers_end_the_connection(guarded_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with serve(guarded_root) as server, connect(server.url) as wire:
        wire.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n")
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                try:
                    wire.sendall(b"a: b\r\n")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert until_closed(wire) == b""
        stop.set()
        dripping.join()


def test_a_connection_without_requests_is_closed(guarded_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.2)
    with serve(guarded_root) as server, connect(server.url) as fresh, connect(server.url) as used:
        used.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert until_closed(used).startswith(b"HTTP/1.1 200")
        assert until_closed(fresh) == b""


def test_a_body_that_stops_is_refused_and_leaves_nothing(guarded_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ais_tar2tf.cluster.server.calls.BODY_SECONDS", 0.2)
    with serve(guarded_root) as server, connect(server.target_url) as wire:
        wire.sendall(b"PUT /v1/objects/bucket/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
        answer = until_closed(wire)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"nothing of the body came for 0 s" in answer
        assert sorted(path.name for path in (guarded_root / "bucket").iterdir()) == ["a.tar", "b.tar"]
    with serve(guarded_root) as server, connect(server.url) as wire:
        wire.sendall(b"POST /v1/buckets/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        answer = until_closed(wire)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not arrive completely within 0 s" in answer


def test_connections_are_bounded_and_idle_ones_make_room(guarded_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 4)
    monkeypatch.setattr(connections.BoundedServer.__init__, "__kwdefaults__", {"most": 4})
    with serve(guarded_root) as server:
        idle = [connect(server.url) for _ in range(20)]
        assert status("GET", f"{server.url}/v1/health") == 200  # an idle connection was closed for it
        for wire in idle:
            wire.close()
        busy = [connect(server.target_url) for _ in range(4)]
        for wire in busy:
            wire.sendall(b"PUT /v1/objects/bucket/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n")
            wire.sendall(b"Expect: 100-continue\r\n\r\n")
            assert wire.recv(1024).startswith(b"HTTP/1.1 100 ")
        answer = requests.get(f"{server.target_url}/v1/health", timeout=TIMEOUT)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        for wire in busy:
            wire.close()


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\na: " + b"b" * 20_000 + b"\r\n\r\n",
        b"GET /v1/" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["many", "long", "line"],
)
def test_headers_are_bounded(guarded_server: Server, request_text: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(guarded_server.url) as wire:
        wire.sendall(request_text)
        assert until_closed(wire).split(b" ", 2)[1] == b"400"
    assert capfd.readouterr().err == ""  # a client cannot fill a log


# Patterns, archives, bodies


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_blocks_the_server(guarded_server: Server, guarded_root: Path, pattern: str) -> None:
    (guarded_root / "bucket" / "names.tar").write_bytes(
        made.tar([("a" * 60 + f"!{n}", {"cls": b""}) for n in range(20)])
    )
    query = urlencode({"archregx": pattern, "archmode": "regexp"})
    began = time.process_time()
    assert status("GET", f"{guarded_server.target_url}/v1/objects/bucket/names.tar?{query}") in (200, 404)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("pattern", ["(", "(?P<a>x)(?P=a)", "(?=x)", "a{100000}", "((a{100}){100}){100}", "\\"])
def test_an_invalid_pattern_is_refused(guarded_server: Server, pattern: str) -> None:
    query = urlencode({"archregx": pattern, "archmode": "regexp"})
    answer = requests.get(f"{guarded_server.target_url}/v1/objects/bucket/a.tar?{query}", timeout=TIMEOUT)
    assert (answer.status_code, "error parsing regexp" in answer.text) == (400, True)


def bad_archives() -> dict[str, bytes]:
    whole = made.tar([("r/0", {"cls": b"1" * 3000})])
    zipped = Path(__file__).read_bytes()[:100]
    flipped = io.BytesIO()
    with zipfile.ZipFile(flipped, "w") as archive:
        archive.writestr("r/0.cls", b"1" * 3000)
    return {
        "cut.tar": whole[:700],
        "flipped.tgz": gzip.compress(whole)[:60] + b"\xff" * 40,
        "no.tgz": b"nothing",
        "frame.tar.lz4": struct.pack("<I", 0x184D2204) + b"\xff" * 50,
        "no.zip": zipped,
        "sized.tar": whole[:124] + b"77777777777\0" + whole[136:],
        "deep.zip": b"PK\5\6" + b"\xff" * 18,
        "flipped.zip": flipped.getvalue().replace(b"1" * 3000, b"2" * 3000),
    }


@pytest.mark.parametrize("name", bad_archives())
def test_one_bad_archive_does_not_make_a_listing_fail(guarded_server: Server, guarded_root: Path, name: str) -> None:
    (guarded_root / "bucket" / name).write_bytes(bad_archives()[name])
    body = {"action": "list", "value": {"flags": "8", "props": "name,size"}}
    answer = requests.get(f"{guarded_server.url}/v1/buckets/bucket", json=body, timeout=TIMEOUT)
    names = [entry["name"] for entry in answer.json()["entries"]]
    assert answer.status_code == 200
    assert {"a.tar", "a.tar/r/0.cls", "b.tar", name} <= set(names)


@pytest.mark.parametrize("query", ["archpath=r/0.cls", "archregx=cls&archmode=suffix"])
@pytest.mark.parametrize("name", bad_archives())
def test_a_client_that_reads_a_bad_archive_gets_an_error_and_fills_no_log(
    guarded_server: Server, guarded_root: Path, caplog: pytest.LogCaptureFixture, name: str, query: str
) -> None:
    (guarded_root / "bucket" / name).write_bytes(bad_archives()[name])
    try:
        answer = requests.get(f"{guarded_server.url}/v1/objects/bucket/{name}?{query}", timeout=TIMEOUT)
    except requests.exceptions.ChunkedEncodingError:
        pass  # the response ended early
    else:
        assert (answer.status_code, answer.json()["status"]) == (500, 500)
    assert not caplog.records


@pytest.mark.parametrize(
    ("size", "pages"),
    [
        (1, [[""], ["-1"], [".gz"], []]),
        (2, [["", "-1"], [".gz"]]),
        (3, [["", "-1", ".gz"], []]),
        (4, [["", "-1", ".gz", "/r/0.cls"], []]),
        (5, [["", "-1", ".gz", "/r/0.cls", "/r/0.jpg"], []]),
        (7, [["", "-1", ".gz", "/r/0.cls", "/r/0.jpg", "/r/0.txt"]]),
    ],
)
def test_objects_between_an_archive_and_its_members_are_listed(
    guarded_server: Server, guarded_root: Path, size: int, pages: list[list[str]]
) -> None:
    """A real AIStore gave these pages for `a.tar`, `a.tar-1` and `a.tar.gz`."""
    fields = {"jpg": b"1", "cls": b"2", "txt": b"3"}
    for name, data in (("m.tar", made.tar([("r/0", fields)])), ("m.tar-1", b"x"), ("m.tar.gz", b"no archive")):
        (guarded_root / "bucket" / name).write_bytes(data)
    found: list[list[str]] = []
    token = ""
    while token or not found:
        value = {"flags": "8", "prefix": "m.tar", "pagesize": size, "continuation_token": token}
        body = {"action": "list", "value": value}
        page = requests.get(f"{guarded_server.url}/v1/buckets/bucket", json=body, timeout=TIMEOUT).json()
        found.append([entry["name"].removeprefix("m.tar") for entry in page["entries"] or ()])
        token = page["continuation_token"]
    assert found == pages


def test_a_zip_with_many_members_needs_only_the_memory_of_a_page(guarded_server: Server, guarded_root: Path) -> None:
    with zipfile.ZipFile(guarded_root / "bucket" / "many.zip", "w") as archive:
        for number in range(12_000):
            archive.writestr(f"{number:05d}", b"")
    body = {"action": "list", "value": {"flags": "8", "prefix": "many.zip"}}
    entries = requests.get(f"{guarded_server.url}/v1/buckets/bucket", json=body, timeout=TIMEOUT).json()["entries"]
    assert len(entries) == 10_000


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("md5", hashlib.md5(b"data", usedforsecurity=False).hexdigest()),
        ("SHA256", hashlib.sha256(b"data").hexdigest().upper()),
        ("sha512", hashlib.sha512(b"data").hexdigest()),
    ],
)
def test_a_body_with_a_wrong_checksum_is_not_stored(
    guarded_server: Server, guarded_root: Path, kind: str, good: str
) -> None:
    address = f"{guarded_server.url}/v1/objects/bucket/new.tar"
    headers = {"Ais-Checksum-Type": kind, "Ais-Checksum-Value": good}
    assert status("PUT", address, data=b"date", headers=headers) == 500
    assert not (guarded_root / "bucket" / "new.tar").exists()
    assert status("PUT", address, data=b"data", headers=headers) == 200
    assert status("PUT", address, data=b"date", headers=headers) == 500
    assert (guarded_root / "bucket" / "new.tar").read_bytes() == b"data"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"in": [1], "mime": ".tar", "strm": true, "coer": true}',
        b'{"in": [{"objname": "a.tar", "start": "x"}], "strm": true, "coer": true}',
        b'{"in": [{"objname": "a.tar", "start": 1e400}], "strm": true, "coer": true}',
        b'{"in": [{"objname": ["a"], "length": {}, "start": []}], "strm": true, "coer": true, "mime": 3}',
    ],
)
def test_an_invalid_batch_is_refused(guarded_server: Server, body: bytes) -> None:
    answer = requests.get(f"{guarded_server.target_url}/v1/ml/moss/bucket", data=body, timeout=TIMEOUT)
    assert answer.status_code in (400, 501), answer.text


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (-5, -1), (1 << 70, 1), (0, 1 << 70)])
def test_a_range_outside_of_an_object_ends_the_batch_early(guarded_server: Server, start: int, length: int) -> None:
    entry = {"objname": "b.tar", "start": start, "length": length}
    body = {"in": [entry], "mime": ".tar", "strm": True, "coer": True}
    connection = http.client.HTTPConnection(urlsplit(guarded_server.target_url).netloc, timeout=TIMEOUT)
    connection.request("GET", "/v1/ml/moss/bucket", json.dumps(body))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse().read()
    connection.close()
    assert status("GET", f"{guarded_server.url}/v1/health") == 200
