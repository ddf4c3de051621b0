"""Downloads range requests, with retries. It must not choose the ranges: `planner.py` does.

The code runs in worker threads. After the reader has jumped over bytes, it also runs in the reader's own thread.

A strong validator is a strong ETag, a version or a checksum: it proves that two answers have the same content. After
a body breaks off, the next body begins after the last received byte, and must state the same strong validator. If the
store states no strong validator, one body brings all wanted bytes of the shard. If that body breaks off, the next
body begins where that body began, and `receiver.py` checks by a hash that the bytes received before come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.retries import is_progress, repeat
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, Tar2TFError, TransportError
from ais_tar2tf.fetch.buffers import BufferPool
from ais_tar2tf.fetch.combined import CombinedRequests
from ais_tar2tf.fetch.interrupts import Interrupts
from ais_tar2tf.fetch.planner import Planner
from ais_tar2tf.fetch.prefix import Differs
from ais_tar2tf.fetch.range_requests import RangeRequest, ShardDownload
from ais_tar2tf.fetch.receiver import Receiver
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Body, Identity, Interrupt, Store

__all__ = ["Downloader"]


class Downloader:
    """Fills range requests with blocks, and ends each request as received or as failed.

    `draw` returns random numbers in [0, 1), which vary the delays between retries.
    """

    def __init__(
        self,
        state: DownloadState,
        planner: Planner,
        store: Store,
        read: Read,
        account: Account,
        tuning: Tuning,
        draw: Callable[[], float],
    ) -> None:
        self._state = state
        self._planner = planner
        self.interrupts: Interrupts = Interrupts(state)
        self.buffers: BufferPool = BufferPool(state)
        self._receiver = Receiver(state, self.buffers)
        self._combined = CombinedRequests(state, self.interrupts, store)
        self._store = store
        self._read = read
        self._account = account
        self._tuning = tuning
        self._draw = draw

    def download_all(self, requests: Sequence[RangeRequest]) -> None:
        """Fill requests that were begun together. Even after an exception, each of these requests is ended."""
        left = list(requests)
        try:
            if len(requests) > 1:
                left = self._combined.download(requests)
            while left:
                self._end(left[0], self._failure_of(left[0]))
                left.pop(0)
        finally:
            for request in left:  # left over only after an exception such as KeyboardInterrupt
                self._end(request, StoreError("fetching was interrupted", url=request.shard.url))

    def _end(self, request: RangeRequest, error: StoreError | None) -> None:
        with self._state.lock:
            self._state.end(request, error)

    def _failure_of(self, request: RangeRequest) -> StoreError | None:
        """Fill a request; return the error if it fails."""
        try:
            self.download(request)
        except StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001  # a request that never ends would block the reader for ever
            return _unexpected(error, request.shard.url)
        return None

    def download(self, request: RangeRequest) -> None:
        """Fill a request, with retries. Progress resets the count of tries."""
        repeat(
            lambda: self._try(request),
            self._read.retry,
            pause=self._pause,
            draw=self._draw,
            on_retry=lambda error: self._note_retry(request, error),
            progress=_ProgressMeter(request, self._read.timeouts.least_rate).advance,
        )

    def _try(self, request: RangeRequest) -> None:
        try:
            self.download_once(request)
        except ShardNotFound as error:
            if not request.received_to and request.shard.size is None:
                raise
            raise ShardNotFound(
                "the object was there when this shard was begun and can no longer be found: deleted, or its target "
                "is down; nothing of it was skipped",
                url=error.url,
            ) from error
        except TransportError:
            if not self._state.is_over(request):
                raise

    def _note_retry(self, request: RangeRequest, error: TransportError) -> None:
        self._state.note_retry(request, error)
        self._account.add(retries=1, resumes=1 if request.received_to else 0)

    def download_once(self, request: RangeRequest) -> None:
        """Request the rest of a range once, and receive it."""
        with self.interrupts.register([request]) as interrupt:
            if interrupt is None:
                return
            body = self._answer(request, interrupt)
            try:
                with self._state.lock:
                    self._planner.note_answer(request, body)
                    self._state.lock.notify_all()
                self._receiver.skip_received(request, body)
                self._receiver.receive(request, body)
            except Differs as error:
                raise ObjectChanged(
                    "the object was replaced while it was read, or since the checkpoint was written: its first bytes "
                    "are others now (the store states no strong ETag, version or checksum, so they were compared); "
                    "start this shard again",
                    url=request.shard.url,
                ) from error
            finally:
                body.close()

    def _answer(self, request: RangeRequest, interrupt: Interrupt) -> Body:
        """Request the rest of a range, and return the answer.

        If the shard lacks a strong validator, one body must bring all wanted bytes of the shard. Only the first
        answer shows whether a validator is lacking. If that answer brings too few bytes, send a second request.
        """
        shard = request.shard
        begin, stop = request.received_to, request.stop
        if shard.lacks_validator:
            begin, stop = shard.body_start, shard.wanted.stop
        body = self._open(request, begin, stop, interrupt)
        if shard.lacks_validator and _is_cut(body, shard, stop):
            body.close()
            body = self._open(request, shard.body_start, shard.wanted.stop, interrupt)
        return body

    def _open(self, request: RangeRequest, begin: int, stop: int | None, interrupt: Interrupt) -> Body:
        requested_at = time.perf_counter()
        body = self._store.open(request.shard.wanted.name, begin, stop, interrupt=interrupt)
        self._tuning.note_answer(time.perf_counter() - requested_at)
        try:
            shard, found = request.shard, body.info.identity
            if body.info.size == begin and shard.is_bound and not shard.identity.is_proved_by(found):
                # A range that begins at the end of the object is answered by 416, which states no identity. The
                # answer to HEAD states the identity.
                found = self._store.head_once(shard.wanted.name, interrupt=interrupt).identity.completed_by(found)
            self._check_content(request, body.info.size, found)
        except StoreError:
            body.close()
            raise
        return body

    def _check_content(self, request: RangeRequest, size: int | None, found: Identity) -> None:
        """Check that an answer has the expected content, and that the shard has not become shorter."""
        shard, begin = request.shard, request.received_to
        url = request.shard.url
        with self._state.lock:
            (shard.identity.prove if shard.is_bound else shard.identity.check)(found, url)
            self._state.note_validator(shard, found)
        if size is not None and size < begin:
            raise ObjectChanged(f"it has {size:,} bytes, and was to be read on from byte {begin:,}", url=url)

    def _pause(self, seconds: float) -> None:
        """Wait before a retry. The wait ends early when the download is closed."""
        deadline = time.monotonic() + seconds
        with self._state.lock:
            while not self._state.is_closed and (left := deadline - time.monotonic()) > 0:
                self._state.lock.wait(left)


class _ProgressMeter:
    """Measures how many bytes one request received between its failures, and in how many seconds."""

    def __init__(self, request: RangeRequest, min_rate: float) -> None:
        self._request = request
        self._min_rate = min_rate
        self._since = time.monotonic()
        self._received = request.received
        self._blocked = request.blocked_seconds

    def advance(self) -> bool:
        """Return whether enough bytes arrived since the last call. Time with a full read-ahead does not count."""
        request, since, received, blocked = self._request, self._since, self._received, self._blocked
        self._since, self._received, self._blocked = time.monotonic(), request.received, request.blocked_seconds
        seconds = self._since - since - (self._blocked - blocked)
        return is_progress(self._received - received, seconds, self._min_rate)


def _is_cut(body: Body, shard: ShardDownload, requested: int | None) -> bool:
    """Return whether a body brings less than the shard's wanted range. `requested` is the request's stop."""
    if body.stop is None:
        return False
    if body.info.size is None:
        return requested != shard.wanted.stop
    return body.start > shard.body_start or body.stop < min(body.info.size, shard.wanted.stop or body.info.size)


def _unexpected(error: Exception, url: str) -> StoreError:
    if isinstance(error, Tar2TFError):
        return StoreError(str(error), url=url)
    failure = StoreError(f"fetching failed unexpectedly ({type(error).__name__}: {error})", url=url)
    failure.__cause__ = error
    return failure
