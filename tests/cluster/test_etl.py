"""The transformer answers requests of AIStore's targets with the result of the same local mapping."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import io
import json
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import numpy as np
import psutil
import pytest
from aiohttp import ClientSession, WSMsgType
from aistore.sdk.etl.etl import Etl
from aistore.sdk.types import EnvVar, ETLRuntimeSpec, ETLSpecMsg

import ais_tar2tf as t2t
from ais_tar2tf.cluster.etl import Definition, Transformer
from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.cluster.etl.sources import body_blocks
from ais_tar2tf.cluster.etl.websocket import ClosedError, Socket
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.ops import Convert, Decode, Func, Rename, Resize, Rotate, Select, SelectDict, SelectJSON
from ais_tar2tf.options import Timeouts
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

CONVERSIONS = [Rename(image="jpg;png"), Decode("image", channels=3), Resize("image", (8, 9)), Rotate("image", 30)]
SELECTIONS = [SelectDict({"image": "image", "label": "cls"})]
SHARD = made.labelled("n0", 7)
PATH = "/b/train-0.tar"
ROOT = Path(__file__).resolve().parents[2]


def to_example(record: dict[str, Any]) -> dict[str, Any]:
    """A mapping in a module, so that another process can import it."""
    return {"name": record["__key__"], "of": record["__shard__"], "size": len(record["jpg"])}


DEFINITIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "conversions": {"conversions": CONVERSIONS},
    "selections": {"conversions": CONVERSIONS, "selections": SELECTIONS},
    "function": {"record_to_example": to_example},
    "function-behind-conversions": {"conversions": [Convert("cls", "int32")], "record_to_example": to_example},
    "tar": {"conversions": CONVERSIONS, "selections": SELECTIONS, "output": "tar"},
}


def at(url: str, path: str) -> str:
    """Return the path, preceded by the service's secret if there is one."""
    return urlsplit(url).path + path


def asked(
    url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=200)
    try:
        connection.request(method, at(url, path), body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def local(definition: dict[str, Any], folder: Path) -> bytes:
    """Return the file that the documented client writes locally from the same shard and URL."""
    (folder / "b").mkdir(parents=True, exist_ok=True)
    (folder / PATH[1:]).write_bytes(SHARD)
    out = folder / "out.record"
    with t2t.serve(folder) as server:
        ops = {name: definition[name] for name in ("conversions", "selections") if name in definition}
        with t2t.AisDataset("b", server.url, **ops) as ais:
            ais.load(
                "train-0.tar", path=out, record_to_example=definition.get("record_to_example"), remote_exec=False
            )
    return out.read_bytes()


@pytest.fixture(params=[name for name in DEFINITIONS if name != "tar"])
def definition(request: pytest.FixtureRequest) -> dict[str, Any]:
    return DEFINITIONS[request.param]


@dataclass
class Target:
    """Simulates a target: it has objects by name, and records PUT requests."""

    url: str
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    puts: list[tuple[str, dict[str, str], dict[str, str], bytes]] = field(default_factory=list)
    status: int = 204
    length: str = ""  # of the header Ais-Direct-Put-Length; no header if empty


@pytest.fixture
def target() -> Iterator[Target]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            data = found.objects.get(urlsplit(self.path).path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def do_PUT(self) -> None:
            parts = urlsplit(self.path)
            body = b"".join(body_blocks(self.rfile, None))
            found.puts.append((parts.path, dict(parse_qsl(parts.query)), dict(self.headers), body))
            said = b"later" if found.status == 200 else b""
            self.send_response(found.status)
            if found.status != 204:
                self.send_header("Content-Length", str(len(said)))
            if found.length:
                self.send_header("Ais-Direct-Put-Length", found.length)
            self.end_headers()
            self.wfile.write(said)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Target(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


# hpush: PUT /bucket/object with the body, or with a file's name in its place


def test_a_pushed_shard_returns_the_file_that_is_written_locally(definition: dict[str, Any], tmp_path: Path) -> None:
    with Transformer(**definition).serve() as service:
        assert asked(service.url, "PUT", PATH, SHARD) == (200, local(definition, tmp_path))


def test_a_body_in_chunks_and_a_connection_that_is_kept() -> None:
    transformer = Transformer(**DEFINITIONS["function"])
    expected = b"".join(transformer.run([SHARD], "ais://b/train-0.tar"))
    with transformer.serve() as service:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
        for body in (SHARD, iter([SHARD[:1000], SHARD[1000:]]), SHARD):
            connection.request("PUT", at(service.url, PATH), body, encode_chunked=not isinstance(body, bytes))
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, expected)
        connection.close()


def test_a_file_is_read_below_the_roots_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in" / "a b.tar", tmp_path / "out.tar"
    inside.parent.mkdir()
    for path in (inside, outside):
        path.write_bytes(SHARD)
    (inside.parent / "link.tar").symlink_to(outside)
    transformer = Transformer(**DEFINITIONS["function"])

    def status(path: Path) -> int:  # a target escapes the path, and then the query
        return asked(service.url, "PUT", f"{PATH}?etl_fqn={quote(quote(str(path), safe=''), safe='')}")[0]

    with transformer.serve(roots=[str(inside.parent)]) as service:
        assert [status(path) for path in (inside, outside, inside.parent / "link.tar")] == [200, 403, 403]
        assert status(inside.parent / "nothing.tar") == 404
        assert status(inside.parent) == 404
    with transformer.serve() as service:
        assert status(inside) == 403


@pytest.mark.parametrize("compressed", [False, True])
def test_a_faulty_shard_has_a_status_and_a_message(compressed: bool) -> None:
    cut = made.gzipped(SHARD)[:-30] if compressed else SHARD[:5000]
    with Transformer().serve() as service:
        status, said = asked(service.url, "PUT", PATH, cut)
        assert status == 422
        assert b"TruncatedArchive: ais://b/train-0.tar, offset" in said
        bad = made.tar([("r/0", {"jpg": b"no picture", "cls": b"1"})])
        status, said = asked(service.url, "PUT", PATH, bad)
        assert (status, b"ais://b/train-0.tar, record 'r/0'" in said) == (422, True)
        assert asked(service.url, "PUT", PATH, SHARD)[0] == 200


def test_an_error_about_a_name_that_is_not_utf8_is_answered() -> None:
    with Transformer().serve() as service:
        status, said = asked(service.url, "PUT", "/b/%FF.tar", SHARD[:300])
    assert (status, said.partition(b": ")[0]) == (422, b"TruncatedArchive")
    assert b"ais://b/?.tar" in said


def test_an_error_after_the_first_piece_ends_the_connection_early() -> None:
    """The client detects the error, because the last chunk is missing."""
    fields = {"bin": bytes(400_000)}
    shard = made.tar([(f"r/{number}", fields) for number in range(20)])[:-100_000]
    with Transformer(conversions=[Rename(data="bin")], selections=[SelectDict({"data": "data"})]).serve() as service:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
        connection.request("PUT", at(service.url, PATH), shard)
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        connection.close()


# hpull: GET by the object's whole name, which the service then requests from the target


@pytest.mark.parametrize("name", ["/b/train-0.tar", "/ais%2F@%23%2Fb%2Ftrain-0.tar"])
def test_a_shard_is_pulled_from_the_target(target: Target, name: str) -> None:
    transformer = Transformer(**DEFINITIONS["function"])
    target.objects[f"/v1/etl/_object/name/secret{name}"] = SHARD
    with transformer.serve(target=f"{target.url}/v1/etl/_object/name/secret") as service:
        expected = b"".join(transformer.run([SHARD], "ais://b/train-0.tar"))
        assert asked(service.url, "GET", f"{name}?latest_ver=true") == (200, expected)
        status, said = asked(service.url, "GET", "/b/none.tar")
        assert (status, b"ais://b/none.tar" in said) == (404, True)
        assert b"secret" not in said  # the secret would let others read from the target
    with transformer.serve(target="http://127.0.0.1:9") as service:
        assert asked(service.url, "GET", name)[0] == 502


# Direct put: the output is sent to another node


def test_the_output_is_put_to_the_node_that_is_named(target: Target) -> None:
    transformer = Transformer(**DEFINITIONS["function"])
    output = b"".join(transformer.run([SHARD], "ais://b/train-0.tar"))
    nodes = f"{target.url}/v1/objects/dst/x?xid=1&owt=2,http://next:1"
    with transformer.serve(target=f"{target.url}/base") as service:
        assert asked(service.url, "PUT", f"{PATH}?etl_args=a%20b", SHARD, {"Ais-Node-Url": nodes}) == (204, b"")
        ((path, query, headers, body),) = target.puts
        assert (path, body) == ("/base/v1/objects/dst/x", output)
        assert query == {"xid": "1", "owt": "2", "etl_args": "a b"}
        assert headers["Ais-Node-Url"] == "http://next:1"
        target.status = 200  # the node is another transformer, whose output is returned
        assert asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": target.url}) == (200, b"later")
        assert target.puts[-1][0] == PATH
        target.status = 500
        assert asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": target.url})[0] == 502


@pytest.mark.parametrize(
    ("stated", "length"),
    [("7", 7), ("0", 0), *((each, None) for each in ("", "\xb2", "x", "-7", "7" * 19, "9" * 5_000))],
)
def test_a_malformed_length_in_the_answer_of_a_node_is_ignored(
    target: Target, stated: str, length: int | None
) -> None:
    target.length = stated
    with Transformer().serve(target=target.url) as service:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
        connection.request("PUT", at(service.url, PATH), SHARD, {"Ais-Node-Url": target.url})
        answer = connection.getresponse()
        connection.close()
    assert answer.status == 204
    sent = len(target.puts[0][3])
    assert int(answer.headers["Ais-Direct-Put-Length"]) == (sent if length is None else length)


def test_an_encrypted_target_is_named_in_the_refusal_of_a_put(target: Target) -> None:
    with Transformer().serve(target="https://t1:7/v1/etl/secret", nodes=[urlsplit(target.url).netloc]) as service:
        status, said = asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": target.url})
    assert (status, target.puts) == (502, [])
    assert said.startswith(b"StoreError: https://t1:7: the transformer's target must have an http:// URL")


def test_a_faulty_shard_is_sent_to_no_node(target: Target) -> None:
    """A faulty shard is not sent to a node, and the connection to the node is closed."""
    nodes = {"Ais-Node-Url": target.url}
    with Transformer().serve(target=target.url) as service:
        status, said = asked(service.url, "PUT", PATH, SHARD[: len(SHARD) // 2], nodes)
        assert (status, said.startswith(b"TruncatedArchive: ais://b/train-0.tar")) == (422, True)
        status, said = asked(service.url, "GET", "/b/none.tar", None, nodes)
        assert (status, said.startswith(b"ShardNotFound: ais://b/none.tar")) == (404, True)
    assert target.puts == []


def test_a_later_transformer_that_breaks_off_ends_the_connection_early() -> None:
    def node(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while not connection.recv(1 << 20).endswith(b"0\r\n\r\n"):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\nno size\r\n")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Transformer().serve(nodes=[f"127.0.0.1:{listener.getsockname()[1]}"]) as service,
    ):
        thread = threading.Thread(target=node, args=(listener,))
        thread.start()
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
        connection.request(
            "PUT", at(service.url, PATH), SHARD, {"Ais-Node-Url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        )
        answer = connection.getresponse()
        assert (answer.status, answer.fp.read()) == (200, b"")  # no last chunk
        answer.close()
        connection.close()
        thread.join()


# ws: a control message and the shard, and then the output


async def talk(url: str, *exchanges: tuple[dict[str, str], bytes | None]) -> list[Any]:
    """Exchange messages with the service by a foreign WebSocket library."""
    found: list[Any] = []
    async with ClientSession() as session, session.ws_connect(f"{url}/ws", max_msg_size=0) as talking:
        for control, body in exchanges:
            await talking.send_bytes(json.dumps(control).encode())
            await talking.ping()
            if body is not None:
                await talking.send_bytes(body)
            found.append(await talking.receive(60))
    return found


def test_messages_in_turns_over_one_socket(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "train-0.tar"
    file.write_bytes(SHARD)
    transformer = Transformer(**DEFINITIONS["function"])
    output = b"".join(transformer.run([SHARD], "ais://b/train-0.tar"))
    said = {"path": "train-0.tar", "etl_args": json.dumps({"shard": "ais://b/train-0.tar"})}
    exchanges = [
        (said, SHARD),
        ({**said, "fqn": quote(str(file), safe="")}, None),
        ({**said, "pipeline": f"{target.url}/v1/objects/dst/x"}, SHARD),
        (said, SHARD),
    ]
    with transformer.serve(roots=[str(tmp_path)], target=target.url) as service:
        first, second, third, fourth = asyncio.run(talk(service.url, *exchanges))
    assert [each.type for each in (first, second, third, fourth)] == [
        WSMsgType.BINARY, WSMsgType.BINARY, WSMsgType.TEXT, WSMsgType.BINARY
    ]  # fmt: skip
    assert first.data == second.data == fourth.data == target.puts[0][3] == output


def test_an_error_ends_the_websocket_because_a_text_would_mean_success(tmp_path: Path) -> None:
    with Transformer().serve() as service:
        for control, body in (({"path": "x"}, b"garbage" * 100), ({"path": "x", "fqn": "/etc/hosts"}, None)):
            (received,) = asyncio.run(talk(service.url, (control, body)))
            assert (received.type, received.data) == (WSMsgType.CLOSE, 1011)
        assert asked(service.url, "GET", "/ws")[0] == 400


def test_a_message_in_many_frames_with_pings_between_them() -> None:
    transformer = Transformer(**DEFINITIONS["function"])
    with transformer.serve() as service, socket.create_connection(("127.0.0.1", urlsplit(service.url).port)) as sock:
        sock.sendall(f"GET {at(service.url, '/ws')} HTTP/1.1\r\n".encode())
        sock.sendall(b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        sock.sendall(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        stream = sock.makefile("rb")
        assert stream.readline().startswith(b"HTTP/1.1 101")
        headers = list(iter(stream.readline, b"\r\n"))
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in headers  # the RFC's own example
        sock.sendall(frame(b'{"path": "train-0.tar"}', 2))
        pieces = [SHARD[at : at + 1_111] for at in range(0, len(SHARD), 1_111)]
        for number, piece in enumerate(pieces):
            sock.sendall(frame(piece, 0 if number else 2, final=number == len(pieces) - 1) + frame(b"hi", 9))
        kinds: list[int] = []
        received = b""
        while 0x82 not in kinds:
            kind, length = stream.read(2)
            length = int.from_bytes(stream.read(2)) if length == 126 else length
            received = stream.read(length)
            kinds.append(kind)
        stream.close()
    assert received == b"".join(transformer.run([SHARD], "ais://train-0.tar"))
    assert kinds.count(0x8A) >= len(pieces) - 1


@pytest.mark.parametrize("kind", range(16))
@pytest.mark.parametrize("final", [True, False])
def test_only_frames_that_the_rfc_defines_are_accepted(kind: int, final: bool) -> None:
    """RFC 6455: the opcodes 0, 1 and 2 are data, 8, 9 and 10 are control frames, which are never in fragments."""
    frames = frame(b"", kind, final=final) + frame(b"data", 2 if kind >= 8 else 0)
    outgoing = io.BytesIO()
    sock = Socket(io.BytesIO(frames), outgoing)
    if (kind in (1, 2) and not final) or (kind in (9, 10) and final):
        assert b"".join(sock.message()) == b"data"
    elif kind in (1, 2):
        assert b"".join(sock.message()) == b""
    else:
        with pytest.raises(ClosedError):
            b"".join(sock.message())
    assert outgoing.getvalue() == (b"\x8a\x00" if kind == 9 and final else b"")


@pytest.mark.parametrize("reason", ["", "short", *("x" * first + "ü€😀" * 40 for first in range(9)), "\udcff"])
def test_the_reason_of_a_close_is_cut_after_a_whole_character(reason: str) -> None:
    outgoing = io.BytesIO()
    Socket(io.BytesIO(), outgoing).close(1011, reason)
    begin, sent = outgoing.getvalue()[:4], outgoing.getvalue()[4:]
    assert begin == b"\x88" + bytes([len(sent) + 2]) + struct.pack(">H", 1011)
    assert len(sent) <= 123
    assert reason.replace("\udcff", "?").startswith(sent.decode())
    assert len(sent) > 119 or sent == reason.encode(errors="replace")


def frame(payload: bytes, kind: int, *, final: bool = True) -> bytes:
    mask = b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return struct.pack(">BBH", kind | (0x80 if final else 0), 0x80 | 126, len(payload)) + mask + masked


# Health, readiness, stopping


def test_health_is_readiness_and_live_is_not() -> None:
    with Transformer(**DEFINITIONS["function"]).serve() as service:
        wait(lambda: asked(service.url, "GET", "/health") == (200, b"Running"))
        service.ready = False
        assert asked(service.url, "GET", "/health")[0] == 503
        assert asked(service.url, "GET", "/live")[0] == 200


def wait(ready: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if ready():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not become ready")


def test_stopping_waits_for_the_current_shard_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ais_tar2tf.cluster.etl.service.STOP_SECONDS", 250.0
    )  # longer than the test, so that only the shard is waited for
    before = set(threading.enumerate())
    service = Transformer(**DEFINITIONS["function"]).serve()
    idle = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
    idle.request("GET", "/live")
    assert idle.getresponse().read() == b"Running"
    busy = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
    busy.putrequest("PUT", at(service.url, PATH))
    busy.putheader("Content-Length", str(len(SHARD)))
    busy.endheaders(SHARD[:100])
    wait(lambda: len(service._server.busy) == 1)
    closing = threading.Thread(target=service.close)
    closing.start()
    busy.send(SHARD[100:])
    answer = busy.getresponse()
    assert (answer.status, len(answer.read()) > 0) == (200, True)
    closing.join(60)
    assert not closing.is_alive()  # although no connection was closed
    busy.close()
    idle.close()
    wait(lambda: not {each for each in set(threading.enumerate()) - before if "etl" in each.name})
    with pytest.raises(ConnectionError):
        asked(service.url, "GET", "/health")


def test_stopping_ends_a_connection_that_stays_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ais_tar2tf.cluster.etl.service.STOP_SECONDS", 0.1)
    service = Transformer(**DEFINITIONS["function"]).serve()
    busy = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=200)
    busy.putrequest("PUT", at(service.url, PATH))
    busy.putheader("Content-Length", str(len(SHARD)))
    busy.endheaders(SHARD[:100])
    wait(lambda: len(service._server.busy) == 1)
    service.close()
    wait(lambda: not service.connections)
    busy.close()


@pytest.mark.full
def test_memory_is_bounded_for_any_shard(tmp_path: Path) -> None:
    """Transform a shard of 160 MB in both ways. The service keeps only a few blocks in memory."""
    name, size, records = tmp_path / "big.tar", 1_000_000, 160
    with name.open("wb") as file:
        for number in range(records):
            file.write(made.tar([(f"r/{number:06d}", {"bin": bytes(size)})])[: 512 + -(-size // 512) * 512])
        file.write(bytes(1024))
    transformer = Transformer(conversions=[Rename(data="bin")], selections=[SelectDict({"data": "data"})])
    environment = {**os.environ, "AIS_TAR2TF_ETL": transformer.definition.to_json(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ais_tar2tf.cluster.etl", "--host", "127.0.0.1", "--port", "0", "--root"]
    with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            wait(lambda: asked(url, "GET", "/health")[0] == 200)
            before = psutil.Process(process.pid).memory_info().rss
            for query in ("", f"?etl_fqn={quote(quote(str(name), safe=''), safe='')}"):
                came = pushed(url, f"/b/big.tar{query}", None if query else name)
                assert came == records * frame_size(size)
            peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) * 1024
            assert peak - before < 96 << 20
        finally:
            process.terminate()
            assert process.wait(60) == 0


def pushed(url: str, path: str, body: Path | None) -> int:
    """Send the body while reading the answer, as Go does, and return the number of received bytes."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    connection.putrequest("PUT", at(url, path))
    connection.putheader("Content-Length", str(body.stat().st_size if body else 0))
    connection.endheaders()

    def send() -> None:
        if body is not None:
            with body.open("rb") as file:
                connection.sock.sendfile(file)

    sending = threading.Thread(target=send)
    sending.start()
    answer = connection.getresponse()
    assert answer.status == 200
    came = 0
    while piece := answer.read(1 << 20):
        came += len(piece)
    sending.join()
    connection.close()
    return came


def frame_size(size: int) -> int:
    return len(t2t.features.encode({"data": bytes(size)})) + 16


# Tars: augmented shards for the plain reader


def test_augmented_shards_equal_those_made_locally() -> None:
    transformer = Transformer(**DEFINITIONS["tar"])
    with transformer.serve() as service:
        status, output = asked(service.url, "PUT", PATH, SHARD)
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(output)) as archive:
        assert archive.getnames()[:2] == ["n0/000000.image.npy", "n0/000000.label"]
    name = made.image.__name__ + os.urandom(4).hex()
    MemoryStore(name).put("out.tar", output)
    MemoryStore(name).put("in.tar", SHARD)
    here = t2t.ops.Pipeline(CONVERSIONS, SELECTIONS)
    plain = list(t2t.open(f"memory://{name}/in.tar").records())
    there = list(t2t.open(f"memory://{name}/out.tar").records(decode={"image.npy": "npy"}))
    assert [record["__key__"] for record in there] == [record["__key__"] for record in plain]
    for record, original in zip(there, plain, strict=True):
        expected = here(original)
        np.testing.assert_array_equal(record["image.npy"], expected["image"])
        assert record["image.npy"].dtype == np.float32
        assert record["label"] == expected["label"]


# Definitions


def test_a_definition_survives_json() -> None:
    ops = [Rename({"seg": "seg.png"}), Decode("cls", vocabulary=("a", "b")), Select("seg")]
    definition = Definition.of(ops[:2], [ops[2], SelectJSON("json", ["a", 0], dtype="float32")], to_example)
    again = Definition.from_json(definition.to_json())
    assert again == definition
    assert again.function is to_example
    assert again.name == definition.name
    assert json.loads(definition.to_json())["record_to_example"] == f"{__name__}:to_example"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"conversions": [Func(dict)]}, "dict is a function of yours, and code does not go to the cluster"),
        ({"conversions": [lambda record: record]}, "nothing is pickled"),
        ({"record_to_example": lambda record: record}, "no function of a module that can be installed"),
        ({"record_to_example": "os.system"}, "named 'package.module:function'"),
        ({"record_to_example": "nowhere:function"}, "there is no 'nowhere:function' here"),
        ({"record_to_example": "json:nothing"}, "there is no 'json:nothing' here"),
        ({"grouping": str.upper}, "a grouping of your own is a function"),
        ({"output": "zip"}, "output is one of tfrecord, tar"),
    ],
)
def test_mappings_that_are_no_data_are_refused_with_the_reason(how: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(why)):
        Transformer(**how)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1}', "no json"])
def test_an_invalid_definition_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="this is no definition"):
        Definition.from_json(text)


# The spec and the container file, made of the same definition


@pytest.mark.parametrize("communication", ["hpush", "hpull", "ws"])
def test_the_spec_is_what_the_official_client_would_send(communication: str) -> None:
    transformer = Transformer(**DEFINITIONS["selections"])
    spec = transformer.spec(image="registry/x:1", communication=communication)
    runtime = spec["runtime"]
    theirs = ETLSpecMsg(
        name=spec["name"],
        comm_type=communication,
        init_timeout=spec["init_timeout"],
        obj_timeout=spec["obj_timeout"],
        direct_put=True,
        runtime=ETLRuntimeSpec(
            image="registry/x:1", command=runtime["command"], env=[EnvVar(**each) for each in runtime["env"]]
        ),
    )
    assert spec == theirs.as_dict()
    Etl.validate_etl_name(spec["name"])
    assert json.loads(transformer.spec_text(image="registry/x:1", communication=communication)) == spec
    (variable,) = runtime["env"]
    assert Definition.from_json(variable["value"]) == transformer.definition


@pytest.mark.parametrize(
    ("how", "why"),
    [({"name": "Ab"}, "6 to 32"), ({"image": ""}, "runs an image"), ({"communication": "grpc"}, "hpush, hpull, ws")],
)
def test_an_invalid_spec_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Transformer().spec(**{"image": "x", **how})


def test_the_containers_command_serves_the_same_definition(tmp_path: Path) -> None:
    """Run the container's command with its environment, without a container runtime."""
    lines = Transformer(**DEFINITIONS["function"]).containerfile(packages=["ais_tar2tf==1", "mine"]).splitlines()
    assert lines[0].startswith("FROM python:3")
    assert lines[1] == 'RUN pip install --no-cache-dir "ais_tar2tf==1" "mine"'
    variables = dict(each.split("=", 1) for each in shlex.split(lines[2].removeprefix("ENV ")))
    command = json.loads(lines[-1].removeprefix("CMD "))
    assert command[:3] == ["python", "-m", "ais_tar2tf.cluster.etl"]
    arguments = [sys.executable, *command[1:], "--root", str(tmp_path), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, env={**os.environ, **variables, "PYTHONPATH": str(ROOT)}, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            file = tmp_path / "train-0.tar"
            file.write_bytes(SHARD)
            _, output = asked(url, "PUT", f"{PATH}?etl_fqn={quote(quote(str(file), safe=''), safe='')}")
            expected = Transformer(**DEFINITIONS["function"]).run([SHARD], "ais://b/train-0.tar")
            assert output == b"".join(expected)
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_a_container_without_a_definition_is_an_error() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "AIS_TAR2TF_ETL"}
    for said in ({}, {"AIS_TAR2TF_ETL": "nonsense"}):
        done = subprocess.run(
            [sys.executable, "-m", "ais_tar2tf.cluster.etl"],
            env={**environment, **said, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 2
        assert "AIS_TAR2TF_ETL is not set" in done.stderr or "no definition" in done.stderr


# Access


def exchanged(url: str, request: bytes) -> bytes:
    """Send bytes on one connection, and return everything that comes back."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 60) as wire:
        wire.sendall(request)
        wire.shutdown(socket.SHUT_WR)
        received = b""
        while piece := wire.recv(65536):
            received += piece
    return received


def test_requests_without_the_secret_are_refused(target: Target) -> None:
    with Transformer(**DEFINITIONS["function"]).serve(target=target.url) as service:
        bare = urlsplit(service.url)._replace(path="").geturl()
        for url in (bare, f"{bare}/wrong", f"{service.url}x"):
            assert asked(url, "PUT", PATH, SHARD)[0] == 403
            assert asked(url, "PUT", PATH, SHARD, {"Ais-Node-Url": target.url})[0] == 403
            assert asked(url, "GET", PATH)[0] == 403
            assert asked(url, "GET", "/ws")[0] == 403
        assert asked(bare, "GET", "/live")[0] == asked(service.url, "GET", "/live")[0] == 200
        assert target.puts == []
        assert asked(service.url, "PUT", PATH, SHARD)[0] == 200


def test_output_is_sent_only_to_targets_of_the_cluster(target: Target) -> None:
    """An unknown node is refused before any byte of the shard is sent to it."""
    nodes = {"tmap": {"t9": {"public_net": {"node_hostname": "127.0.0.1", "daemon_port": "9", "direct_url": 3}}}}
    target.objects["/v1/daemon"] = json.dumps(nodes).encode()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, Transformer().serve(target=target.url) as service:
        elsewhere.settimeout(0.2)
        for node in (
            f"http://127.0.0.1:{elsewhere.getsockname()[1]}",
            "http://169.254.169.254",
            "http://x",
            "http://",
        ):
            status, said = asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": f"{node}/v1/objects/d/x"})
            assert status in (403, 502), said
        with pytest.raises(TimeoutError):
            elsewhere.accept()
        listed = "http://127.0.0.1:9/v1/objects/d/x"
        assert asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": listed})[0] == 502  # allowed, but unreachable
        encrypted = target.url.replace("http://", "https://")
        assert asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": encrypted})[0] == 502  # never without TLS
        assert target.puts == []
        assert asked(service.url, "PUT", PATH, SHARD, {"Ais-Node-Url": target.url})[0] == 204


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{" * 100_000, b'{"tmap": 3}', b'{"tmap": {"t": 3, "u": {"public_net": []}}}']
)
def test_an_invalid_cluster_map_allows_no_node(target: Target, document: bytes) -> None:
    target.objects["/v1/daemon"] = document
    peers = Peers(target.url, ["Next:7"], Timeouts())
    assert [peers.allows_node(url) for url in (target.url, "http://next:7/x", "http://127.0.0.1:9")] == [1, 1, 0]
    assert [peers.allows_client(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "")] == [
        1,
        1,
        1,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("target", "same", "other"),
    [
        ("http://t1", "http://T1.:80/x", "http://t1:443"),
        ("https://t1", "https://t1:443/x", "http://t1"),
        ("https://t1:80", "http://t1", "https://t1"),
    ],
)
def test_a_url_without_a_port_has_the_port_of_its_scheme(target: str, same: str, other: str) -> None:
    peers = Peers(target, [], Timeouts(), clock=lambda: 0)
    peers._map_fetched = 0  # the map is fetched already, and empty
    assert (peers.allows_node(same), peers.allows_node(other)) == (True, False)


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: " + b"0" * 18 + b"5\r\n",
        b"Content-Length: " + b"5" * 19 + b"\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ],
)
@pytest.mark.parametrize("method", [b"PUT", b"GET"])
def test_a_request_with_an_ambiguous_end_has_one_answer(method: bytes, framing: bytes) -> None:
    """The following bytes are not read as a request, because another client may have sent them."""
    follows = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
    with Transformer(**DEFINITIONS["function"]).serve() as service:
        path = at(service.url, PATH).encode()
        request = method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n0\r\n\r\n" + follows
        answers = exchanged(service.url, request)
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", ["/live", PATH, f"{PATH}?etl_fqn=%2Fetc%2Fhostname", "/ws"])
@pytest.mark.parametrize("secret", [True, False])
def test_an_unread_body_is_not_read_as_a_request(path: str, secret: bool) -> None:
    inner = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
    for method in (b"GET", b"PUT"):
        with Transformer(**DEFINITIONS["function"]).serve() as service:
            where = (at(service.url, path) if secret else path).encode()
            head = b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(inner)
            answers = exchanged(service.url, method + b" " + where + head + inner)
        assert answers.count(b"HTTP/1.1 ") == 1


def test_the_root_is_an_argument_of_the_etl() -> None:
    transformer = Transformer()
    command = transformer.spec(image="x")["runtime"]["command"]
    assert "--root" not in command
    assert transformer.spec(image="x", roots=["/ais/mp1"])["runtime"]["command"] == [*command, "--root", "/ais/mp1"]
    assert json.loads(transformer.containerfile(roots=["/a"]).splitlines()[-1][4:]) == [*command, "--root", "/a"]


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ais_tar2tf.cluster.etl.service.MOST_CONNECTIONS", 2)
    with Transformer(**DEFINITIONS["function"]).serve() as service:
        parts = urlsplit(service.url)
        held = [socket.create_connection((parts.hostname, parts.port), 60) for _ in range(2)]
        wait(lambda: service.connections == 2)
        with pytest.raises((http.client.HTTPException, ConnectionError, AssertionError)):
            assert asked(service.url, "GET", "/live")[0] == 200
        for each in held:
            each.close()
        wait(lambda: not service.connections)
        assert asked(service.url, "GET", "/live")[0] == 200
