"""Checksums of files, each computed once. The event loop must call `start`, which hashes in the pool."""

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

from ais_tar2tf.base import forking

__all__ = ["Checksums", "FileIdentity", "StatedChecksum"]

ENTRIES = 65_536  # cached checksums, some 200 bytes each
CHUNK_BYTES = 1024 * 1024  # read and hashed at once; larger chunks are not faster
_SHOWN = 128  # characters of a stated checksum in an error: the length of a sha512
YOUNG_NS = 50_000_000  # file times may tick every 10 ms: a younger file may change and keep its time


class FileIdentity(NamedTuple):
    """Identifies the content of a file by its directory entry: as long as that is unchanged, so is the content."""

    path: str
    inode: int
    mtime_ns: int
    size: int

    @classmethod
    def from_stat(cls, path: str, stat: os.stat_result) -> FileIdentity:
        return cls(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)


class StatedChecksum:
    """The checksum that a client states for an upload, compared with the bytes that arrive.

    AIStore's headers state it. Without them, every upload is accepted.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._kind = headers.get("Ais-Checksum-Type", "").lower()
        self._value = headers.get("Ais-Checksum-Value", "").lower()
        self._hasher: Any = _HASHERS[self._kind]() if self._kind in _HASHERS and self._value else None

    def update(self, chunk: bytes) -> None:
        if self._hasher is not None:
            self._hasher.update(chunk)

    @property
    def differs(self) -> bool:
        return self._hasher is not None and self._hasher.digest().hex() != self._value

    @property
    def shown(self) -> str:
        return f"{self._kind}({self._value[:_SHOWN]} != {self._hasher.digest().hex()})"


_HASHERS: dict[str, Callable[[], Any]] = {
    "xxhash2": xxhash.xxh64,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "crc32c": google_crc32c.Checksum,
}


class Checksums:
    """A bounded cache of the files' xxhash checksums, and the jobs that compute them."""

    def __init__(self, pool: Executor, *, entries: int = ENTRIES) -> None:
        self._pool = pool
        self._entries = entries
        self._cache: OrderedDict[FileIdentity, str] = OrderedDict()
        self._jobs: dict[FileIdentity, Future[str]] = {}
        self._lock = forking.lock()
        self._stopping = forking.event()

    def cached(self, content: FileIdentity) -> str | None:
        """Return the checksum of a content if it is in the cache."""
        with self._lock:
            digest = self._cache.get(content)
            if digest is not None:
                self._cache.move_to_end(content)
            return digest

    def remember(self, content: FileIdentity, digest: str) -> None:
        with self._lock:
            self._cache[content] = digest
            self._cache.move_to_end(content)
            if len(self._cache) > self._entries:
                self._cache.popitem(last=False)

    def start(self, descriptor: int, content: FileIdentity) -> Future[str]:
        """Hash an open file in the pool. Requests for the same content share one job. Call it on the event loop."""
        job = self._jobs.get(content)
        if job is None:
            # A descriptor of its own: the first request may end, and close its file, before the job ends.
            own = os.dup(descriptor)
            job = self._jobs[content] = self._pool.submit(self.compute, own, content)
            job.add_done_callback(lambda _: self._finish(own, content))
        return job

    def _finish(self, descriptor: int, content: FileIdentity) -> None:
        os.close(descriptor)
        self._jobs.pop(content, None)

    def compute(self, descriptor: int, content: FileIdentity) -> str:
        """Return the checksum, hashing on this thread if necessary. The descriptor's position does not move."""
        cached = self.cached(content)
        if cached is not None:
            return cached
        began_ns = time.time_ns()
        digest = self._hash(descriptor)
        same = FileIdentity.from_stat(content.path, os.fstat(descriptor)) == content
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
        """Make running jobs fail at their next chunk."""
        self._stopping.set()
