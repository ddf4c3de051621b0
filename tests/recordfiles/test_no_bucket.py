"""If the output bucket does not exist, no input is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import ShardNotFound
from ais_tar2tf.source import Source
from tests.support.web_server import WebServer

Row = dict[str, Any]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")


@pytest.fixture(params=["ais", "s3"])
def missing_bucket(request: pytest.FixtureRequest, tmp_path: Path, keys: None) -> Iterator[tuple[str, str]]:
    """Return a URL in a missing bucket, and its endpoint."""
    if request.param == "s3":
        with WebServer() as web:
            yield "s3://none/", web.url
    else:
        (tmp_path / "root").mkdir()
        with t2t.serve(tmp_path / "root") as server:
            yield "ais://none/", server.url


@pytest.fixture
def numbered_source(tmp_path: Path) -> Source:
    return t2t.open(t2t.pack([{"__key__": str(at), "txt": "x"} for at in range(20)], f"{tmp_path}/x-{{}}.tar"))


def export(source: Source, out: str, endpoint: str) -> None:
    source.export(out, endpoint=endpoint)


def share(source: Source, out: str, endpoint: str) -> None:
    source.export(out, endpoint=endpoint, align="shard", shard=(0, 2))


def index(source: Source, out: str, endpoint: str) -> None:
    source.write_index(out, endpoint=endpoint)


@pytest.mark.parametrize("write", [export, share, index])
def test_shards_are_not_read(
    write: Callable[[Source, str, str], None], numbered_source: Source, missing_bucket: tuple[str, str]
) -> None:
    numbered_source.schema  # noqa: B018  # reads a sample, which every export needs
    before = numbered_source.stats.bytes
    with pytest.raises(ShardNotFound, match="there is no such bucket to write into; make it first") as caught:
        write(numbered_source, *missing_bucket)
    assert caught.value.url == missing_bucket[0]
    assert numbered_source.stats.bytes == before


def test_rows_are_not_packed(missing_bucket: tuple[str, str]) -> None:
    came: list[int] = []

    def rows() -> Iterator[Row]:
        for at in range(1000):
            came.append(at)
            yield {"__key__": str(at), "txt": "x"}

    with pytest.raises(ShardNotFound, match="make it first"):
        t2t.pack(rows(), f"{missing_bucket[0]}x-{{}}.tar", endpoint=missing_bucket[1])
    assert len(came) <= 1


class _Unlisted(BaseHTTPRequestHandler):
    """A bucket that may be read and written, but not listed."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self._answer(403 if "list-type" in query else 200 if path in self.objects else 404, self.objects.get(path))

    def do_HEAD(self) -> None:
        self._answer(200 if self.path.partition("?")[0] in self.objects else 404)

    def do_PUT(self) -> None:
        self.objects[self.path.partition("?")[0]] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def _answer(self, status: int, data: bytes | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Log nothing."""


@pytest.mark.usefixtures("keys")
def test_a_bucket_that_may_not_be_listed_is_written() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Unlisted) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            packed = t2t.pack([{"__key__": "a", "txt": "x"}], "s3://bucket/x.tar", endpoint=endpoint)
        finally:
            server.shutdown()
            thread.join()
    assert list(packed) == ["s3://bucket/x.tar"]
