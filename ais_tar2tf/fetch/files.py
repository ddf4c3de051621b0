"""Local shards → blocks of bytes, in order: what `fetch` does, without its threads, for a file waits for nobody.

What is not wanted is not read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ais_tar2tf import forking
from ais_tar2tf.account import Account
from ais_tar2tf.errors import ObjectChanged, StoreError, TransportError
from ais_tar2tf.fetch import Span
from ais_tar2tf.options import KIB, MIB, Read
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.file import FileBody, FileStore

__all__ = ["FileFetch"]

_BLOCK = MIB
_FIRST_BLOCK = 16 * KIB  # behind a jump there may be another one; blocks double from here


class FileFetch:
    """Reads `spans` one after another: `next_shard`, then `read` until it gives nothing, and so on."""

    def __init__(self, store: FileStore, spans: Iterator[Span], read: Read, account: Account) -> None:
        self._store = store
        self._spans = spans
        self._read = read
        self._account = account
        self._lock = forking.lock()  # `close` may come from another thread
        self._closed = forking.event()
        self._buffer: memoryview = np.empty(_BLOCK, np.uint8).data
        self._span = Span("")
        self._body: FileBody | None = None
        self._identity = Identity()
        self._at = 0
        self._block_size = _FIRST_BLOCK

    def next_shard(self) -> Span | None:
        """Go to the next shard, giving up what is left of this one; None behind the last."""
        with self._lock:
            self._leave()
        span = next(self._spans, None)
        if span is not None:
            self._span, self._identity, self._at, self._block_size = span, span.identity, span.start, _FIRST_BLOCK
        return span

    def read(self) -> memoryview:
        """The next bytes of this shard, valid until the next call; empty at its end, once that is proved."""
        began, count = time.perf_counter(), 0
        for tried in range(1, self._read.retry.attempts + 1):
            try:
                with self._lock:
                    count = self._read_once()
                break
            except TransportError:
                with self._lock:
                    self._leave()
                if tried == self._read.retry.attempts:
                    raise
                self._account.add(retries=1, resumes=1 if self._at else 0)
                self._closed.wait(self._read.retry.delay(tried, random.random))
        self._account.add(bytes=count, network_wait=time.perf_counter() - began)
        self._at += count
        self._block_size = min(2 * self._block_size, _BLOCK)
        return self._buffer[:count]

    def has_come(self, *, wait: bool = False) -> bool:  # noqa: ARG002  # as Fetch has it
        """Whether `read` will not wait: nobody waits for a file."""
        return True

    def jump(self, count: int) -> int:
        """Leave out the next `count` bytes, which nobody wants; how many are left out."""
        if count < self._block_size or not self._read.jump_bytes:
            return 0
        with self._lock:
            if self._body is None:
                return 0
            count = min(count, self._end(self._body) - self._at)
            self._at += count
            self._body.seek(self._at)
        self._block_size = _FIRST_BLOCK
        return count

    @property
    def identity(self) -> Identity:
        """Of the current shard; complete once the first bytes are there."""
        return self._identity

    @property
    def size(self) -> int | None:
        """Of the current shard; known once the first bytes are there."""
        return self._identity.size

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self, *, grace: float = 0.0) -> None:  # noqa: ARG002  # as Fetch has it
        """No file is open when this returns."""
        self._closed.set()
        with self._lock:
            self._leave()

    def _read_once(self) -> int:
        url = self._store.url(self._span.name)
        if self._closed.is_set():
            raise StoreError("the reader was closed", url=url)
        if self._body is None:
            self._body = self._open(url)
        left = self._end(self._body) - self._at
        if not left:
            self._body.check()
            return 0
        count = self._body.readinto(self._buffer[: min(left, self._block_size)])
        if not count:
            raise TransportError(f"it ended {left:,} bytes early", url=url)
        return count

    def _open(self, url: str) -> FileBody:
        """The file, which is the same as before, and as long as it was."""
        body = self._store.open(self._span.name, self._at)
        try:
            (self._identity.prove if self._span.bound else self._identity.check)(body.info.identity, url)
            if not body.state.fits(self._identity.seen):
                raise ObjectChanged(
                    "the file was written to since it was read, though its time of modification is what it was; "
                    "start this shard again",
                    url=url,
                )
            if body.info.size is not None and body.info.size < self._at:
                raise ObjectChanged(
                    f"it has {body.info.size:,} bytes, and was to be read on from byte {self._at:,}", url=url
                )
        except StoreError:
            body.close()
            raise
        self._identity = replace(self._identity.completed_by(body.info.identity), seen=body.state.seen)
        return body

    def _end(self, body: FileBody) -> int:
        size = body.info.size
        assert size is not None
        return size if self._span.stop is None else min(size, self._span.stop)

    def _leave(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
