"""Checksums of the server's files, computed in a pool of threads and cached, and checksums that clients state.

This module must not open files; it hashes files that its callers have opened. Code on the event loop must call
`Checksums.start`, and not `Checksums.compute`, which would block the event loop while it hashes a file.
"""

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

ENTRIES = 65_536  # the most checksums in the cache; each takes some 200 bytes
CHUNK_BYTES = 1024 * 1024  # bytes that are read and hashed at once; larger chunks are not faster
_SHOWN = 128  # the most characters of a stated checksum in an error; a sha512 has 128
# The modification time of a file may change in steps of 10 ms. So a file that was written less than this number of
# nanoseconds (50 ms) ago may be written again, and still have the same modification time.
YOUNG_NS = 50_000_000


class FileIdentity(NamedTuple):
    """Identifies the content of a file by its path and by the result of `stat`.

    If two identities are equal, the content is the same, unless the file was written less than `YOUNG_NS` before the
    first of them was made.
    """

    path: str
    inode: int
    mtime_ns: int
    size: int

    @classmethod
    def from_stat(cls, path: str, stat: os.stat_result) -> FileIdentity:
        return cls(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)


class StatedChecksum:
    """The checksum that a client states for an upload, and the checksum of the bytes that arrived so far.

    The client states its checksum in AIStore's headers for checksums. If these headers are missing, or state a kind
    of checksum that is not in `_HASHERS`, any bytes are accepted.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._kind = headers.get("Ais-Checksum-Type", "").lower()
        self._value = headers.get("Ais-Checksum-Value", "").lower()
        self._hasher: Any = _HASHERS[self._kind]() if self._kind in _HASHERS and self._value else None

    def update(self, chunk: bytes) -> None:
        """Add the next bytes of the upload."""
        if self._hasher is not None:
            self._hasher.update(chunk)

    @property
    def differs(self) -> bool:
        """Whether the client stated a checksum of a known kind, and the bytes have another checksum of this kind."""
        return self._hasher is not None and self._hasher.digest().hex() != self._value

    @property
    def shown(self) -> str:
        """Both checksums as a text, for the error. Use this text only if `differs` is true."""
        return f"{self._kind}({self._value[:_SHOWN]} != {self._hasher.digest().hex()})"


_HASHERS: dict[str, Callable[[], Any]] = {
    "xxhash2": xxhash.xxh64,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "crc32c": google_crc32c.Checksum,
}


class Checksums:
    """A bounded cache of the xxhash checksums of files, and the jobs that compute such checksums in a pool."""

    def __init__(self, pool: Executor, *, entries: int = ENTRIES) -> None:
        self._pool = pool
        self._entries = entries
        self._cache: OrderedDict[FileIdentity, str] = OrderedDict()
        self._jobs: dict[FileIdentity, Future[str]] = {}
        self._lock = forking.lock()
        self._stopping = forking.event()

    def cached(self, content: FileIdentity) -> str | None:
        """Return the checksum of a file's content; None if the checksum is not in the cache."""
        with self._lock:
            digest = self._cache.get(content)
            if digest is not None:
                self._cache.move_to_end(content)
            return digest

    def remember(self, content: FileIdentity, digest: str) -> None:
        """Add the checksum of a file's content to the cache. A full cache evicts the least recently used checksum."""
        with self._lock:
            self._cache[content] = digest
            self._cache.move_to_end(content)
            if len(self._cache) > self._entries:
                self._cache.popitem(last=False)

    def start(self, descriptor: int, content: FileIdentity) -> Future[str]:
        """Begin to hash an open file in the pool. Calls for the same content share one job.

        Call this method only on the event loop.
        """
        job = self._jobs.get(content)
        if job is None:
            # The job gets a duplicate of the descriptor, because the caller may close its own before the job ends.
            own = os.dup(descriptor)
            try:
                job = self._jobs[content] = self._pool.submit(self.compute, own, content)
            except RuntimeError:  # the pool was shut down, because the server is closing
                os.close(own)
                raise
            job.add_done_callback(lambda _: self._finish(own, content))
        return job

    def _finish(self, descriptor: int, content: FileIdentity) -> None:
        os.close(descriptor)
        self._jobs.pop(content, None)

    def compute(self, descriptor: int, content: FileIdentity) -> str:
        """Return the checksum of an open file from the cache, or hash the file on this thread.

        The position of the descriptor does not change. The checksum is cached only if the file was written more than
        `YOUNG_NS` before the hashing began, and did not change during the hashing.
        """
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
        """Make all running and future jobs fail before their next chunk."""
        self._stopping.set()
