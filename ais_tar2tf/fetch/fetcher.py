"""Reads ranges of shards as blocks of bytes, in order. Worker threads download the blocks ahead of the reader.

`planner.py` divides the ranges into requests to the store. `downloader.py` downloads the requests in worker threads,
the earliest request first. The reader consumes their blocks in order. All three share one `DownloadState`.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from ais_tar2tf.base import forking
from ais_tar2tf.base.allocation import BATCHES, aligned_bytes, keep_freed
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.monitoring.waits import Wait
from ais_tar2tf.errors import ChecksumMismatch, StoreError, TransportError
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.fetch.downloader import Downloader
from ais_tar2tf.fetch.planner import Planner
from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.ranges import HEADROOM, Block, ShardRange
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Caching, Identity, Store

__all__ = ["Fetcher", "close_all"]


class Fetcher:
    """Downloads ranges of shards ahead of the reader, and hands out their bytes in order.

    Call `next_shard()`, then `read()` until it returns an empty view, and so on. Worker threads download at most
    `read_ahead_bytes` ahead of the reader, and wait when the reader falls behind. With one connection, a shard is one
    request. With more connections, a shard is requested in ranges of at most `read.range_bytes`.

    A fetcher must not parse what it downloads, and never mixes bytes of two versions of a shard. Its errors are
    StoreErrors, or come from the iterator of shards.
    """

    most_again: int = HEADROOM
    """The largest useful `again` of `read`."""

    def __init__(
        self,
        store: Store,
        shards: Iterator[ShardRange],
        read: Read,
        account: Account,
        *,
        read_ahead_bytes: int | None = None,
        tuning: Tuning | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Prepare to read; nothing is requested before `next_shard()`.

        Args:
            store: The store of the shards.
            shards: The ranges to read, one in each shard. The iterator is consumed as far as the read-ahead allows.
            read: The options of reading.
            account: Counts bytes, retries and seconds of waiting.
            read_ahead_bytes: The bound of the read-ahead. Default: `read.limits.read_ahead_bytes`.
            tuning: Chooses the number of connections and the read-ahead while reading. Default: a new tuning, which
                leaves the number of connections as `read` states it.
            draw: Returns random numbers in [0, 1), for the delays between the tries of a request.
        """
        if _ending.is_set():
            raise StoreError("the program is ending; shards can be read only before that", url=store.url(""))
        self._store = store
        self._read = read
        self._account = account
        self._tuning = tuning = tuning or Tuning(replace(read, most_connections=0))
        self._tuning.pause()
        self._state = state = DownloadState(tuning, read_ahead_bytes or read.limits.read_ahead_bytes)
        self._planner = Planner(state, store, shards, read, tuning)
        self._downloader = Downloader(state, self._planner, store, read, account, tuning, draw)
        self._active = 0  # the number of workers that download at present
        self._reader_downloads: int | None = None  # the id of the reader's thread while it downloads a request
        self._why_closed = "the reader was closed"
        self._workers: list[threading.Thread] = []
        self._reader_buffer: memoryview | None = None  # the buffer whose bytes the last `read()` returned
        self._last: memoryview = memoryview(b"")  # what the last `read()` returned
        self._wait = Wait()
        self._waited_for: RangeRequest | None = None
        self._checksum: Checksum | None = None  # of the whole shard; None if only a part is read
        keep_freed(BATCHES)
        _open_fetchers.add(self)
        forking.at_fork(self)

    # The reader's side.

    def next_shard(self) -> ShardRange | None:
        """Go to the next shard, abandoning the rest of the current shard; return None after the last."""
        with self._state.lock:
            self._downloader.interrupts.end_abandoned(self._state.leave_shard(), at_once=True)
            shard = self._planner.next_shard()
            self._checksum, self._last = None, memoryview(b"")
            if shard is not None:
                self._start_workers()
            return shard

    def read(self, *, keep: bool = False, again: int = 0) -> memoryview:
        """Return the next bytes of the current shard, or an empty view at its end.

        The shard's length and checksum are verified at its end.

        Args:
            keep: Whether the view stays valid as long as anything refers to it. Otherwise it is valid until the next
                call.
            again: The number of bytes at the end of the previous view with which this view begins. At the shard's
                end, it has only these bytes.

        Raises:
            TransportError: The connection broke, and the retry budget is spent.
            ObjectChanged: The shard was replaced while it was read.
            ChecksumMismatch: All bytes arrived, but not with the checksum that the store states.
        """
        assert again <= len(self._last)
        repeated = self._last[len(self._last) - again :]
        if not again:
            self._give_back_buffer()
        offset = self._state.delivered
        try:
            block = self._next_block()
        finally:
            self._end_wait()
        if block is None:
            self._verify()
            return repeated
        buffer = self._downloader.buffers.lend(block.buffer) if keep else block.buffer
        data = buffer[block.begin : block.end]
        self._last = _preceded(repeated, buffer, block) if again else data
        self._give_back_buffer()
        self._reader_buffer = None if keep else block.buffer
        self._account.add(bytes=len(data))
        self._note(time.perf_counter(), len(data), 0.0)
        shard = self._state.current
        if offset == 0 and shard is not None and shard.wanted.stop is None:
            self._checksum = Checksum.stated_by(self.identity)
        if self._checksum is not None:
            self._checksum.update(data)
        return self._last

    def is_ready(self, *, wait: bool = False) -> bool:
        """Return whether `read()` would return or raise an error at once.

        If `wait` is true, wait until `read()` would do so, and return True.
        """
        while True:
            with self._state.lock:
                request = None if self.closed else self._planner.next_request()
                if request is None or request.blocks or request.error is not None:
                    self._end_wait()
                    return True
                if not wait:
                    return False
                self._start_workers()
                self._wait_for(request)

    def jump(self, count: int) -> int:
        """Skip up to `count` bytes if that is faster than downloading them; return the number of skipped bytes.

        After a jump, the checksum of the whole shard is not verified.
        """
        with self._state.lock:
            count, abandoned = self._planner.jump(count)
            if count:
                self._downloader.interrupts.end_abandoned(abandoned)
                self._checksum = None
            return count

    @property
    def identity(self) -> Identity:
        """The identity of the current shard, as the store states it; complete after the first `read()`.

        If the store states no strong validator, the fingerprint is a hash of the bytes that were read so far.
        """
        shard = self._state.current
        assert shard is not None
        if not shard.lacks_validator:
            return shard.identity
        return replace(shard.identity, fingerprint=shard.prefix_hash or shard.identity.fingerprint)

    @property
    def size(self) -> int | None:
        """The size of the current shard, if the store states it; None before the first `read()`."""
        assert self._state.current is not None
        return self._state.current.size

    @property
    def closed(self) -> bool:
        """Whether `close()` was called, or the process was forked."""
        return self._state.is_closed

    def forked(self) -> None:
        """Close the fetcher in a forked child process, since the threads and sockets belong to the parent process."""
        self._downloader.interrupts.clear()
        self._state.close_in_child()
        self._workers.clear()
        self._why_closed = "this reading was begun before the process was forked; begin a new one in the child"
        _open_fetchers.discard(self)

    def close(self, *, grace: float = 0.0) -> None:
        """End every request. On return, no thread is left, and no socket that a cache did not take over.

        Args:
            grace: Seconds in which workers may end their requests by themselves, before their sockets are closed. A
                cache may meanwhile take over a request and keep it open, so that a later reader continues it.
        """
        self._end_wait()
        with self._state.lock:
            self._state.close()
        self._downloader.interrupts.end_all(grace)
        patience = self._read.timeouts.connect + 2
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(patience)
        self._workers.clear()
        with self._state.lock:
            self._state.lock.wait_for(lambda: self._reader_downloads in (None, threading.get_ident()), patience)
            self._downloader.buffers.clear()
            self._state.clear()
        _open_fetchers.discard(self)

    def _next_block(self) -> Block | None:
        """Wait for the next block in order; return None at the end of the shard."""
        while True:
            with self._state.lock:
                self._check_open()
                request = self._planner.next_request()
                if request is None:
                    return None
                self._start_workers()
                if request.blocks:
                    block = self._state.consume_block(request)
                    if block is not None:
                        return block
                    continue
                if request.error is not None:
                    raise request.error
                if not (request.is_planned and request.shard.is_jumping):
                    self._wait_for(request)
                    continue
                requests = self._planner.begin(request)  # after a jump; waking a worker would take longer
                self._reader_downloads = threading.get_ident()
            self._download(requests)

    def _download(self, requests: list[RangeRequest]) -> None:
        """Download requests in the reader's thread."""
        try:
            with self._waiting_for(requests[0]):
                self._downloader.download_all(requests)
        finally:
            with self._state.lock:
                self._reader_downloads = None
                self._state.lock.notify_all()

    def _wait_for(self, request: RangeRequest) -> None:
        """Wait until a request, or the state of the download, changes."""
        with self._waiting_for(request):
            self._state.wait_for_change(request)

    @contextlib.contextmanager
    def _waiting_for(self, request: RangeRequest) -> Generator[None]:
        """Count the time of the `with` statement as waiting for a request.

        Several such times may follow one another. Reports show them as one wait, which `_end_wait` ends.
        """
        if self._waited_for is not request:
            self._waited_for = request
            self._wait.begin(request.shard.url, lambda: request.last_error)
        began = time.perf_counter()
        yield
        ended = time.perf_counter()
        self._account.add(network_wait=ended - began)
        self._note(ended, 0, ended - began)

    def _end_wait(self) -> None:
        if self._waited_for is not None:
            self._waited_for = None
            self._wait.end()

    def _note(self, now: float, received: int, waited: float) -> None:
        """Tell the tuning how many bytes were received, and for how many seconds the reader waited."""
        if chosen := self._tuning.note(now, received, waited):
            self._account.note_choices(chosen)

    def _check_open(self) -> None:
        if self.closed:
            shard = self._state.current
            raise StoreError(self._why_closed, url=self._store.url("") if shard is None else shard.url)

    def _give_back_buffer(self) -> None:
        if self._reader_buffer is not None:
            with self._state.lock:
                self._downloader.buffers.give_back(self._reader_buffer)
        self._reader_buffer = None

    def _verify(self) -> None:
        """Check the length of a shard that was read to its end, and the checksum that the store states."""
        shard, delivered = self._state.current, self._state.delivered
        assert shard is not None
        if shard.end is not None and delivered != shard.end:
            raise TransportError(f"{delivered:,} bytes came of {shard.end:,}", url=shard.url)
        if self._checksum is not None:
            try:
                self._checksum.verify(shard.identity, shard.url)
            except ChecksumMismatch:
                if isinstance(self._store, Caching):
                    self._store.forget(shard.wanted.name)
                raise
            self._checksum = None

    # The workers' side.

    def _start_workers(self) -> None:
        """Start workers, up to one for each connection, but no more than there are requests."""
        wanted = min(self._tuning.connections, len(self._state.requests))
        while len(self._workers) < wanted and not self.closed:
            worker = threading.Thread(target=self._work, name="ais_tar2tf-fetch", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # the system starts no more threads: the running workers do all the work
                if not self._workers:
                    raise
                return
            self._workers.append(worker)

    def _work(self) -> None:
        while requests := self._claim():
            try:
                self._downloader.download_all(requests)
            finally:
                with self._state.lock:
                    self._active -= 1
                    self._state.lock.notify_all()

    def _claim(self) -> list[RangeRequest]:
        """Wait for requests to download, and begin them; return an empty list when the fetcher is closed."""
        with self._state.lock:
            while not self.closed:
                requests = self._planner.claim() if self._active < max(1, self._tuning.connections) else []
                if requests:
                    self._active += 1
                    self._start_workers()
                    return requests
                self._state.lock.wait()
            return []


def _preceded(repeated: memoryview, buffer: memoryview, block: Block) -> memoryview:
    """Return the bytes `repeated`, and after them the bytes of a block, which is in `buffer`."""
    begin = block.begin - len(repeated)
    if begin >= 0 and not buffer.readonly:
        buffer[begin : block.begin] = repeated
        return buffer[begin : block.end]
    joined: memoryview = aligned_bytes(block.end - begin).data
    joined[: len(repeated)] = repeated
    joined[len(repeated) :] = buffer[block.begin : block.end]
    return joined


_open_fetchers: weakref.WeakSet[Fetcher] = weakref.WeakSet()
_ending = forking.event()


@atexit.register
def close_all() -> None:
    """Close all fetchers, and refuse new ones: the interpreter is about to end the worker threads."""
    _ending.set()
    for fetcher in list(_open_fetchers):
        fetcher.close()
