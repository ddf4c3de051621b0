"""An HTTP server on 127.0.0.1 that injects a scripted fault into each answer and counts the bytes that it sent."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Self
from urllib.parse import unquote, urlsplit

import xxhash

PATIENCE = 20  # seconds that a test waits for an event before it fails
PIECE = 64 * 1024
_OBJECTS = "/v1/objects/"
_BUCKETS = "/v1/buckets/"


@dataclass
class ServedObject:
    """The bytes of an object, and the headers that identify its content: ETag, version or checksum."""

    data: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])


def plain(data: bytes) -> ServedObject:
    """Return an object without any header that identifies its content."""
    return ServedObject(data)


def tagged(data: bytes, tag: str = "1") -> ServedObject:
    """Return an object with an ETag."""
    return ServedObject(data, {"ETag": f'"{tag}"'})


def ais(data: bytes, version: int = 1) -> ServedObject:
    """Return an object with the headers of an AIStore target: a checksum and a version."""
    digest = xxhash.xxh64_hexdigest(data)
    return ServedObject(
        data, {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": digest, "Ais-Version": str(version)}
    )


@dataclass(frozen=True, kw_only=True)
class Fault:
    """How one answer differs from a good one. Offsets are positions in the body of this answer."""

    status: int = 0  # answer with this status, and with `body`, in place of the object
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    mute: bool = False  # close the connection before any header
    silent: bool = False  # never answer, but keep the connection open
    after: int | None = None  # after this many bytes of the body …
    then: Literal["reset", "short", "stall"] = "reset"  # … reset or close the connection, or send nothing more
    wait: threading.Event | None = None  # instead of `then`: wait for this event, then send the rest
    flip: int | None = None  # the offset of a byte in which one bit is flipped
    framing: Literal["length", "chunked", "close"] = "length"
    ranges: bool = True  # False: ignore the header Range
    total: bool = True  # False: end Content-Range in /* instead of the object's length
    interim: tuple[int, ...] = ()  # statuses of interim answers (1xx) before the final one
    shift: int = 0  # added to the offsets in Content-Range, which makes them wrong
    repeat: int = 0  # send this many bytes from before the range, too; Content-Range does not include them
    length_error: int = 0  # added to Content-Length, which makes it wrong; the whole body is sent
    piece: int = PIECE  # bytes in each send
    pause: float = 0.0  # seconds between two sends
    before: Callable[[], None] = lambda: None  # called when the request has arrived


GOOD = Fault()


def random_faults(seed: int, size: int, count: int) -> list[Fault]:
    """Draw `count` faults that a client recovers from, for a body of `size` bytes."""
    draw = random.Random(seed)
    kinds: list[Callable[[], Fault]] = [
        lambda: Fault(status=draw.choice([408, 429, 500, 502, 503])),
        lambda: Fault(mute=True),
        lambda: Fault(after=draw.randrange(size + 1), then="reset"),
        lambda: Fault(after=draw.randrange(size + 1), then="short"),
        lambda: Fault(after=draw.randrange(size + 1), then="short", ranges=False),
        lambda: Fault(after=draw.randrange(size + 1), framing="chunked"),
        lambda: Fault(shift=1),
        lambda: Fault(piece=draw.choice([1 + size // 50, 1000])),
        lambda: GOOD,
    ]
    return [draw.choice(kinds)() for _ in range(count)]


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]  # names in lower case

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


class FaultServer:
    """Serves `objects` by name. `script[name]` holds the faults of the next answers; later answers are good.

    The server also understands a part of AIStore's API: /v1/objects/BUCKET/NAME redirects to the object BUCKET/NAME,
    and /v1/buckets/BUCKET lists a bucket. It accepts signed S3 URLs without checking the signature.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.objects: dict[str, ServedObject] = {}
        self.script: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.requests: list[Request] = []
        self.sent = 0  # bytes of bodies that the kernel has accepted
        self.blocked = threading.Event()  # set when the client has read nothing for 0.3 s
        self.stalls: list[float] = []  # for each stalled answer, the seconds until the client left
        self.closed_unanswered = 0  # connections closed in place of their second or later answer
        self.max_concurrent = 0
        self._at_once = 0
        self._lock = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._tls = tls
        self._acceptor = threading.Thread(target=self._accept, name="faults", daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, name: str, served: ServedObject, faults: Iterable[Fault] = ()) -> None:
        self.objects[name] = served
        self.script[name].extend(faults)

    def ranges(self, name: str) -> list[str | None]:
        return [request.range for request in self.requests if request.target == f"/{name}"]

    def stop_listening(self) -> None:
        """Accept no further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        self.stop_listening()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        with self._lock:
            return len(self._connections)

    def wait_until_no_client(self) -> None:
        """Wait until no client is connected."""
        with self._lock:
            assert self._lock.wait_for(lambda: not self._connections, PATIENCE), "a client is still connected"

    def wait_until_requests(self, count: int) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.requests) >= count, PATIENCE), "no more requests came"

    def wait_until_concurrent(self, count: int) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: self.max_concurrent >= count, PATIENCE), self.max_concurrent

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._connections.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), name="faults", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(OSError):
                connection = self._secured(connection)
                if isinstance(connection, ssl.SSLSocket):
                    connection.do_handshake()
                with connection.makefile("rb") as stream:
                    self._converse(connection, stream)
        finally:
            connection.close()
            with self._lock:
                self._connections.discard(connection)
                self._lock.notify_all()

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        secured = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._connections.discard(connection)
            self._connections.add(secured)
        return secured

    def _converse(self, connection: socket.socket, stream: BinaryIO) -> None:
        """Answer requests until the client or the server closes the connection."""
        answered = 0
        while (request := _read_request(stream)) is not None:
            name = _name_of(request.target)
            with self._lock:
                self.requests.append(request)
                fault = self.script[name].popleft() if self.script[name] else GOOD
                self.closed_unanswered += fault.mute and answered > 0
                self._lock.notify_all()
            answered += 1
            fault.before()
            if fault is GOOD and self._answers_as_proxy(connection, request):
                continue
            if not self._answer(connection, request, self.objects.get(name), fault):
                return

    def _answers_as_proxy(self, connection: socket.socket, request: Request) -> bool:
        """Redirect or list, as an AIStore proxy does. Return False if the request asks for neither."""
        parts = urlsplit(request.target)
        if parts.path.startswith(_OBJECTS) and "pid=" not in parts.query:
            location = f"{self.url}{parts.path}?{parts.query}&pid=p1&utm=1"
            connection.sendall(_head(301, {"Location": location, "Content-Length": "0"}))
            return True
        if not parts.path.startswith(_BUCKETS):
            return False
        bucket = parts.path.removeprefix(_BUCKETS)
        found = sorted(name.removeprefix(f"{bucket}/") for name in self.objects if name.startswith(f"{bucket}/"))
        entries = [{"name": name, "size": str(len(self.objects[f"{bucket}/{name}"].data))} for name in found]
        body = json.dumps({"uuid": "x", "continuation_token": "", "entries": entries, "flags": 0}).encode()
        connection.sendall(_head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body)
        return True

    def _answer(self, connection: socket.socket, request: Request, served: ServedObject | None, fault: Fault) -> bool:
        """Answer one request. Return whether the connection stays open."""
        connection.sendall(b"".join(_head(status, {"Link": "</a>"}) for status in fault.interim))
        if fault.mute:
            return False
        if fault.silent:
            self._stall(connection)
            return False
        if fault.status or served is None:
            headers = {"Content-Length": str(len(fault.body)), **fault.headers}
            connection.sendall(_head(fault.status or 404, headers) + fault.body)
            return True
        data, status, headers = _body_of(request, served, fault)
        if fault.framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif fault.framing == "length":
            headers["Content-Length"] = str(len(data) + fault.length_error)
        else:
            headers["Connection"] = "close"
        connection.sendall(_head(status, {**headers, **fault.headers}))
        if request.method == "HEAD":
            return fault.framing == "length"
        with self._lock:
            self._at_once += 1
            self.max_concurrent = max(self.max_concurrent, self._at_once)
            self._lock.notify_all()
        try:
            return self._send(connection, data, fault)
        finally:
            with self._lock:
                self._at_once -= 1

    def _send(self, connection: socket.socket, data: memoryview, fault: Fault) -> bool:
        at, stop = 0, len(data) if fault.after is None else min(fault.after, len(data))
        while at < stop:
            piece = data[at : min(at + fault.piece, stop)]
            if fault.flip is not None and at <= fault.flip < at + len(piece):
                changed = bytearray(piece)
                changed[fault.flip - at] ^= 0x40
                piece = memoryview(changed)
            if fault.framing == "chunked":
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.sent += len(piece)
            else:
                self._push(connection, piece)
            at += len(piece)
            time.sleep(fault.pause)
        if fault.wait is not None:
            fault.wait.wait(PATIENCE)
            self._push(connection, data[stop:])
        elif fault.after is not None and (stop < len(data) or fault.framing == "chunked"):
            if fault.then == "stall":
                self._stall(connection)
            elif fault.then == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fault.framing == "chunked":
            connection.sendall(b"0\r\n\r\n")
        return fault.framing != "close" and fault.length_error <= 0

    def _stall(self, connection: socket.socket) -> None:
        began = time.monotonic()
        _wait_for_client(connection)
        with self._lock:
            self.stalls.append(time.monotonic() - began)

    def _push(self, connection: socket.socket, piece: memoryview) -> None:
        """Send all of `piece`, and set `blocked` if the client reads nothing for 0.3 s."""
        while piece:
            connection.settimeout(0.3)
            try:
                count = connection.send(piece)
            except TimeoutError:
                self.blocked.set()
                connection.settimeout(None)
                count = connection.send(piece)
            connection.settimeout(None)
            self.sent += count
            piece = piece[count:]


def _name_of(target: str) -> str:
    """Return the requested object's name, without the query of an AIStore redirect or of an S3 signature."""
    parts = urlsplit(target)
    if "X-Amz-" in parts.query:
        return unquote(parts.path.removeprefix("/"))
    if parts.path.startswith(_OBJECTS) and "pid=" in parts.query:
        return unquote(parts.path.removeprefix(_OBJECTS))
    return target.removeprefix("/")


def _read_request(stream: BinaryIO) -> Request | None:
    """Read the next request and skip its body. Return None if the client has left or does not speak HTTP.

    A client that tries TLS sends bytes that may form three words by chance, so the third word is checked, too.
    """
    first = stream.readline().decode("latin-1").split()
    if len(first) != 3 or not first[2].startswith("HTTP/"):
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    stream.read(int(headers.get("content-length", "0")))
    return Request(first[0], first[1], headers)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {'OK' if status < 300 else 'No'}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _body_of(request: Request, served: ServedObject, fault: Fault) -> tuple[memoryview, int, dict[str, str]]:
    data, size = memoryview(served.data), len(served.data)
    if "," in (request.range or "") and fault.ranges:
        return _several(request, served, fault)
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.range or "")
    if asked is None or not fault.ranges:
        return data, 200, dict(served.headers)
    start, stop = int(asked[1]), min(int(asked[2]) + 1 if asked[2] else size, size)
    if start >= size:
        return data[:0], 416, {"Content-Range": f"bytes */{size}"}
    total = str(size) if fault.total else "*"
    content_range = f"bytes {start + fault.shift}-{stop - 1 + fault.shift}/{total}"
    return data[max(0, start - fault.repeat) : stop], 206, {"Content-Range": content_range, **served.headers}


def _several(request: Request, served: ServedObject, fault: Fault) -> tuple[memoryview, int, dict[str, str]]:
    """Return several ranges as multipart/byteranges, framed as nginx frames them."""
    assert request.range is not None
    body = b""
    for start, last in re.findall(r"(\d+)-(\d+)", request.range):
        content_range = f"bytes {int(start) + fault.shift}-{int(last) + fault.shift}/{len(served.data)}"
        head = f"\r\n--0001\r\nContent-Type: application/octet-stream\r\nContent-Range: {content_range}\r\n\r\n"
        body += head.encode() + served.data[int(start) : int(last) + 1]
    body += b"\r\n--0001--\r\n"
    return memoryview(body), 206, {"Content-Type": "multipart/byteranges; boundary=0001", **served.headers}


def _wait_for_client(connection: socket.socket) -> None:
    """Wait until the client closes the connection."""
    connection.settimeout(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        while connection.recv(4096) and time.monotonic() < deadline:
            pass
