"""The xxhash of every content, computed once; it must not hash on the loop: `start` does it in the pool."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from concurrent.futures import Executor, Future
from typing import NamedTuple

import xxhash

from ais_tar2tf import forking

__all__ = ["Checksums", "Content"]

ENTRIES = 65_536  # remembered checksums; some 200 bytes each
CHUNK_BYTES = 1024 * 1024  # read and hashed at once: large enough that calls do not count
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
