"""Reads ranges of local shards as blocks of bytes, in order. A local file needs no threads and no read-ahead."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

from ais_tar2tf.base import forking
from ais_tar2tf.base.allocation import LARGE_FIELDS, aligned_bytes, keep_freed
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.retries import repeat
from ais_tar2tf.errors import ObjectChanged, StoreError, TransportError
from ais_tar2tf.fetch.buffers import LentBuffers
from ais_tar2tf.fetch.ranges import ShardRange
from ais_tar2tf.options import KIB, MIB, Read
from ais_tar2tf.stores import Identity, LocalFiles, SeekableBody

__all__ = ["FileFetcher"]

_MAX_BLOCK = 4 * MIB  # each block costs some 200 µs in Python, which is much for few large members
_MIN_BLOCK = MIB
_FIRST_BLOCK = 16 * KIB  # after a jump, since another jump may follow soon; then blocks double


class FileFetcher:
    """Reads shards of local files one after another. It has the methods of `Fetcher`.

    Call `next_shard()`, then `read()` until it returns an empty view, and so on.
    """

    most_again: int = 32 * KIB
    """The largest useful `again` of `read`. Larger members are found by `TarReader.walk`, without reading them."""

    def __init__(
        self,
        store: LocalFiles,
        shards: Iterator[ShardRange],
        read: Read,
        account: Account,
        *,
        read_ahead_bytes: int | None = None,
    ) -> None:
        """Prepare to read; no file is opened before the first call of `read`.

        Args:
            store: The store of the shards.
            shards: The ranges to read.
            read: The options of reading.
            account: Counts bytes, retries and seconds of waiting.
            read_ahead_bytes: Bounds a block, though nothing is read ahead. Default: the bound of `read.limits`.
        """
        keep_freed(LARGE_FIELDS)
        most = read_ahead_bytes or read.limits.read_ahead_bytes
        self._full_block = max(_MIN_BLOCK, min(_MAX_BLOCK, most // 2))
        # The bytes of records that a caller should read from `content` before it hands them out.
        self.records_bytes: int = max(_MIN_BLOCK, most // 4)
        self._store = store
        self._shards = shards
        self._read = read
        self._account = account
        self._lock = forking.lock()  # `close` may come from another thread
        self._closed = forking.event()
        self._buffer: memoryview = aligned_bytes(self._full_block).data
        self._lent = LentBuffers()
        self._wanted = ShardRange("")
        self._body: SeekableBody | None = None
        self.identity: Identity = Identity()  # of the current shard; complete after the first `read`
        self._offset = 0
        self._block_size = _FIRST_BLOCK

    def next_shard(self) -> ShardRange | None:
        """Go to the next shard, skipping the rest of the current shard; return None after the last."""
        with self._lock:
            self._leave()
        wanted = next(self._shards, None)
        if wanted is not None:
            self._wanted, self.identity, self._offset = wanted, wanted.identity, wanted.start
            self._block_size = _FIRST_BLOCK
        return wanted

    def read(self, *, keep: bool = False, again: int = 0) -> memoryview:
        """Return the next bytes of the current shard, or an empty view at its end.

        At the end, the file's length and state are verified.

        Args:
            keep: Whether the view stays valid as long as anything refers to it. Otherwise it is valid until the next
                call.
            again: The number of bytes before the current offset to read again. At the shard's end, the view has only
                these bytes.
        """
        began = time.perf_counter()
        if again:
            self._go_to(self._offset - again)
        count = repeat(
            lambda: self._read_once(more_than=again),
            self._read.retry,
            pause=self._closed.wait,
            draw=random.random,
            on_retry=lambda _: self._account.add(retries=1, resumes=1 if self._offset else 0),
        )
        self._account.add(bytes=count - again, network_wait=time.perf_counter() - began)
        self._offset += count
        self._block_size = min(2 * self._block_size, self._full_block)
        buffer = self._buffer
        if keep and count:
            spare = self._lent.take_back()
            buffer, self._buffer = self._lent.lend(buffer), spare or aligned_bytes(self._full_block).data
        return buffer[:count]

    @property
    def content(self) -> tuple[FileBytes, int] | None:
        """The file of the current shard, and the end of the range to read; None while the file is not open."""
        with self._lock:
            return None if self._body is None else (self._body.content, self._end(self._body))

    @property
    def offset(self) -> int:
        """The offset in the shard at which the next `read` begins."""
        return self._offset

    def continue_at(self, offset: int, unread: int) -> None:
        """Let the next `read` begin at `offset`, because the bytes before it are read from `content`.

        Count them in the statistics, except `unread` bytes of fields that are not selected.
        """
        self._account.add(bytes=offset - self._offset - unread)
        self._go_to(offset)

    def _go_to(self, offset: int) -> None:
        with self._lock:
            self._offset = offset
            if self._body is not None:
                self._body.seek(offset)

    def is_ready(self, *, wait: bool = False) -> bool:  # noqa: ARG002  # the signature of Fetcher
        """Return True, as `read` never waits for bytes."""
        return True

    def jump(self, count: int) -> int:
        """Skip up to `count` bytes if that is faster than reading them; return how many are skipped."""
        if count < self._block_size or not self._read.jump_bytes:
            return 0
        with self._lock:
            if self._body is None:
                return 0
            count = min(count, self._end(self._body) - self._offset)
            self._offset += count
            self._body.seek(self._offset)
        self._block_size = _FIRST_BLOCK
        return count

    @property
    def size(self) -> int | None:
        """The size of the current shard; None while it is unknown."""
        return self.identity.size

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self, *, grace: float = 0.0) -> None:  # noqa: ARG002  # the signature of Fetcher
        """Close the open file."""
        self._closed.set()
        with self._lock:
            self._leave()

    def _read_once(self, *, more_than: int) -> int:
        """Read one block; if that fails, close the file, so that the next try opens it again."""
        with self._lock:
            try:
                return self._read_block(more_than)
            except TransportError:
                self._leave()
                raise

    def _read_block(self, more_than: int) -> int:
        url = self._store.url(self._wanted.name)
        if self._closed.is_set():
            raise StoreError("the reader was closed", url=url)
        if self._body is None:
            self._body = self._open(url)
        left = self._end(self._body) - self._offset
        if not left:
            self._body.content.check()
            return 0
        size = min(left, more_than + self._block_size, self._full_block)
        count = 0
        while count < min(size, more_than + 1):
            received = self._body.readinto(self._buffer[count:size])
            if not received:
                raise TransportError(f"it ended {left - count:,} bytes early", url=url)
            count += received
        return count

    def _open(self, url: str) -> SeekableBody:
        """Open the file, and check that its identity is the same as before, and that it reaches the offset."""
        body = self._store.open(self._wanted.name, self._offset)
        try:
            (self.identity.prove if self._wanted.bound else self.identity.check)(body.info.identity, url)
            if not body.content.state.fits(self.identity.fingerprint):
                raise ObjectChanged(
                    "the file was written to since it was read, though its time of modification is what it was; "
                    "start this shard again",
                    url=url,
                )
            if body.info.size is not None and body.info.size < self._offset:
                raise ObjectChanged(
                    f"it has {body.info.size:,} bytes, and was to be read on from byte {self._offset:,}", url=url
                )
        except StoreError:
            body.close()
            raise
        self.identity = replace(
            self.identity.completed_by(body.info.identity), fingerprint=body.content.state.fingerprint
        )
        return body

    def _end(self, body: SeekableBody) -> int:
        size = body.info.size
        assert size is not None
        return size if self._wanted.stop is None else min(size, self._wanted.stop)

    def _leave(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
