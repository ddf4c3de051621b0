"""A small web server of objects in memory: HTTP/1.1 with ranges or HTTP/1.0 without, optionally with TLS."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class WebServer:
    """Serves `objects` by their unquoted names. Used as a proxy, it answers requests for every host itself."""

    def __init__(self, *, ranges: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}  # from path to Location
        self.requests: list[tuple[str, str]] = []  # method and target, in order of arrival
        self.headers: list[dict[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), _Ranged if ranges else _Plain)
        self._server.web = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    web: WebServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close their connection."""


class _Plain(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    timeout = 20
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        web = self.server.web
        web.requests.append((self.command, self.path))
        web.headers.append(dict(self.headers.items()))
        path = urlsplit(self.path).path
        if path in web.redirects:
            self.send_response(302)
            self.send_header("Location", web.redirects[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = web.objects.get(unquote(path).removeprefix("/"))
        if data is None:
            self.send_response(404)
            self.send_header("Content-Length", "9")
            self.end_headers()
            self.wfile.write(b"not here\n" if with_body else b"")
            return
        self._send(data, with_body=with_body)

    def _send(self, data: bytes, *, with_body: bool) -> None:
        self.send_response(200)
        self._finish(data, data if with_body else b"", len(data))

    def _finish(self, whole: bytes, body: bytes, length: int) -> None:
        self.send_header("ETag", f'"{hashlib.sha256(whole).hexdigest()[:16]}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Log nothing."""


class _Ranged(_Plain):
    protocol_version = "HTTP/1.1"

    def _send(self, data: bytes, *, with_body: bool) -> None:
        requested = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if requested is None:
            super()._send(data, with_body=with_body)
            return
        start, stop = int(requested[1]), min(int(requested[2] or len(data)) + 1, len(data))
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self._finish(data, data[start:stop], stop - start)
