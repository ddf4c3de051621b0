"""Prepare one run: three shards on a faulty server, a way to read them, and the place of the fault."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import os
import random
import socket
import ssl
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ais_tar2tf.errors import Tar2TFError
from tests.servers import certificates
from tests.support.fault_server import Fault, FaultServer, ServedObject, ais, tagged

WAYS = ("ais", "http", "s3")
PUBLIC = "s3 public"  # a bucket that asks for no signature
SHARDS = 3
CANARY = "canary-0f3a9c-token"
_KEY = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": "us-east-1"}

RecordBytes = tuple[str, bytes]
"""The key and the bytes of a record."""


@functools.cache
def shard(number: int) -> bytes:
    """Return a tar of 20 to 26 records, written by tarfile."""
    draw, made = random.Random(number), io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for at in range(20 + 3 * number):
            info = tarfile.TarInfo(f"s{number}/{at:06d}.bin")
            info.size = draw.randrange(4_000)
            tar.addfile(info, io.BytesIO(draw.randbytes(info.size)))
    return made.getvalue()


@functools.cache
def gzipped(number: int) -> bytes:
    return gzip.compress(shard(number), 1, mtime=0)


@functools.cache
def records(number: int) -> list[RecordBytes]:
    """Return the records that tarfile reads from a shard."""
    found: list[RecordBytes] = []
    with tarfile.open(fileobj=io.BytesIO(shard(number))) as tar:
        for info in tar:
            body = tar.extractfile(info)
            assert body is not None
            found.append((info.name.removesuffix(".bin"), body.read()))
    return found


@dataclass(kw_only=True)
class Setup:
    """The faults of a run, and its allowed results: one of `errors`, or the exact records if there are none."""

    faults: list[Fault] = field(default_factory=list[Fault])  # for the next answers that contain bytes of the object
    first_server: list[Fault] = field(default_factory=list[Fault])  # for the next answers of the first server
    thing: ServedObject | None = None  # in place of the undamaged object
    errors: tuple[type[Tar2TFError], ...] = ()
    may_be_exact: bool = False
    damaged: bool = False  # damaged records may come before the error that detects the damage
    server_fails: bool = False  # the server fails, not just one shard
    counted: bool = True  # whether the statistics must match the server's number of requests
    token_renewed: bool = False
    idle: float = 10.0
    attempts: int = 5
    connections: int | None = None
    member_bytes: int | None = None


class Scene:
    """The server, the objects' names and the random choices of one run."""

    def __init__(self, way: str, seed: int, name: str, stack: contextlib.ExitStack) -> None:
        self.way = way
        self.draw = random.Random(f"{name} {way} {seed}")
        self.server: FaultServer = stack.enter_context(FaultServer())
        self.faulty: int = self.draw.randrange(SHARDS)
        self.zipped: bool = self.draw.random() < 0.4
        self.connections: int = self.draw.choice([1, 1, 2])
        self.states_checksum: bool = way == "ais" or self.draw.random() < 0.4
        self._stack = stack
        self._others: list[FaultServer] = []

    @property
    def data(self) -> bytes:
        return (gzipped if self.zipped else shard)(self.faulty)

    @property
    def size(self) -> int:
        return len(self.data)

    def before_end(self) -> int:
        """Draw an offset so that a part of the archive that readers need comes after it."""
        data = self.data
        needed = len(data) if self.zipped else -(-len(data.rstrip(b"\0")) // 512) * 512
        return self.draw.randrange(1, needed)

    def any_offset(self) -> int:
        return self.draw.randrange(self.size)

    def thing(self, data: bytes) -> ServedObject:
        return ais(data) if self.states_checksum else tagged(data)

    def name(self, number: int) -> str:
        return f"bucket/train-{number}.tar{'.gz' if self.zipped else ''}"

    def first_request(self, number: int) -> str:
        """Return the key in the server's script of the first request for a shard."""
        return f"v1/objects/{self.name(number)}?provider=ais" if self.way == "ais" else self.name(number)

    def template(self) -> str:
        base = f"{self.server.url}/bucket" if self.way == "http" else f"{self.way.split()[0]}://bucket"
        return f"{base}/train-{{0..{SHARDS - 1}}}.tar{'.gz' if self.zipped else ''}"

    def other_server(self, tls: ssl.SSLContext | None = None) -> FaultServer:
        """Start another server that has an undamaged copy of the faulty shard."""
        other = self._stack.enter_context(FaultServer(tls))
        other.add(self.name(self.faulty), self.thing(self.data))
        self._others.append(other)
        return other

    def redirect_to(self, url: str) -> Fault:
        """Return a redirect to the faulty shard at `url`, in the style of the store's servers."""
        name = self.name(self.faulty)
        path = f"v1/objects/{name}?provider=ais&pid=t1&utm=1" if self.way == "ais" else name
        return Fault(status=self.draw.choice([301, 302, 307, 308]), headers={"Location": f"{url}/{path}"})

    def dead_url(self) -> str:
        """Return a URL whose port is reserved, but refuses connections."""
        sock = self._stack.enter_context(contextlib.closing(socket.socket()))
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    @property
    def others(self) -> list[FaultServer]:
        return self._others


@contextlib.contextmanager
def credentials(*, public: bool = False) -> Iterator[None]:
    """Put an S3 key, or the setting for public buckets, into an environment without endpoints and proxies."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(("AIS_", "AWS_")) or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ.update({"AWS_SKIP_SIGNATURE": "true"} if public else _KEY, AIS_AUTHN_TOKEN_FILE=os.devnull)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@functools.cache
def untrusted_tls() -> ssl.SSLContext:
    """Return a TLS context whose certificate was signed by an untrusted CA."""
    with tempfile.TemporaryDirectory() as folder:
        made = certificates.make(Path(folder))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.server, made.server_key)
    return context
