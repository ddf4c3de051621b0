"""The xxhash of every content, computed once; it must not hash on the loop: `start` does it in the pool."""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import google_crc32c
import xxhash

from ais_tar2tf import forking

__all__ = ["Checksums", "Content", "Stated"]

ENTRIES = 65_536  # remembered checksums; some 200 bytes each
CHUNK_BYTES = 1024 * 1024  # read and hashed at once: large enough that calls do not count
_SHOWN = 128  # characters of a stated checksum in an error: a sha512 has as many
YOUNG_NS = 50_000_000  # a file's clock may tick every 10 ms: one that was just written can change without a trace


class Content(NamedTuple):
    """What a file holds, as far as its directory entry can tell."""

    path: str
    inode: int
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, path: str, stat: os.stat_result) -> Content:
        return cls(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)


class Stated:
    """The checksum that a client states for what it sends, compared with what comes."""

    def __init__(self, kind: str, value: str) -> None:
        self._kind = kind
        self._value = value.lower()
        self._hasher: Any = _HASHERS[kind]() if kind in _HASHERS and value else None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Stated:
        """Read AIStore's headers; a client that sends none of them states nothing."""
        return cls(headers.get("Ais-Checksum-Type", "").lower(), headers.get("Ais-Checksum-Value", ""))

    def update(self, chunk: bytes) -> None:
        if self._hasher is not None:
            self._hasher.update(chunk)

    @property
    def differs(self) -> bool:
        return self._hasher is not None and self._hasher.hexdigest() != self._value

    @property
    def shown(self) -> str:
        return f"{self._kind}({self._value[:_SHOWN]} != {self._hasher.hexdigest()})"


class _Crc32c:
    def __init__(self) -> None:
        self._sum = google_crc32c.Checksum()

    def update(self, chunk: bytes) -> None:
        self._sum.update(chunk)

    def hexdigest(self) -> str:
        return self._sum.hexdigest().decode()


_HASHERS: dict[str, Callable[[], Any]] = {
    "xxhash2": xxhash.xxh64,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "crc32c": _Crc32c,
}


class Checksums:
    """A bounded map from contents to hex digests, and the jobs that fill it."""

    def __init__(self, pool: Executor, *, entries: int = ENTRIES) -> None:
        self._pool = pool
        self._entries = entries
        self._known: OrderedDict[Content, str] = OrderedDict()
        self._jobs: dict[Content, Future[str]] = {}
        self._lock = forking.lock()
        self._stopping = forking.event()

    def known(self, content: Content) -> str | None:
        with self._lock:
            digest = self._known.get(content)
            if digest is not None:
                self._known.move_to_end(content)
            return digest

    def remember(self, content: Content, digest: str) -> None:
        with self._lock:
            self._known[content] = digest
            self._known.move_to_end(content)
            if len(self._known) > self._entries:
                self._known.popitem(last=False)

    def start(self, descriptor: int, content: Content) -> Future[str]:
        """Hash an open file in the pool; requests for one content share one job. Only the loop calls this."""
        job = self._jobs.get(content)
        if job is None:
            # Its own descriptor: the request that asked first may end, and close its file, before the job does.
            own = os.dup(descriptor)
            job = self._jobs[content] = self._pool.submit(self.compute, own, content)
            job.add_done_callback(lambda _: self._finish(own, content))
        return job

    def _finish(self, descriptor: int, content: Content) -> None:
        os.close(descriptor)
        self._jobs.pop(content, None)

    def compute(self, descriptor: int, content: Content) -> str:
        """Hash now, on this thread, without moving the descriptor's position."""
        known = self.known(content)
        if known is not None:
            return known
        began_ns = time.time_ns()
        digest = self._hash(descriptor)
        same = Content.of(content.path, os.fstat(descriptor)) == content
        if same and began_ns - content.mtime_ns > YOUNG_NS:
            self.remember(content, digest)
        return digest

    def _hash(self, descriptor: int) -> str:
        hasher, offset = xxhash.xxh64(), 0
        while chunk := os.pread(descriptor, CHUNK_BYTES, offset):
            if self._stopping.is_set():
                raise InterruptedError("the server is closing")
            hasher.update(chunk)
            offset += len(chunk)
        return hasher.hexdigest()

    def stop(self) -> None:
        """Let running jobs end soon."""
        self._stopping.set()
