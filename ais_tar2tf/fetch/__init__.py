"""Shards → blocks of bytes, in order, read ahead over several connections and bounded; the only threads of the path.

A shard is asked for in *parts* (ranges); parts are planned in delivery order, also across shards. Workers fill
blocks of the earliest parts; the reader takes them in order. Where a body breaks off, its part goes on from the
byte after the last one that came, bound to the same object, so no byte is lost and none comes twice.
"""

from __future__ import annotations

import atexit
import logging
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ais_tar2tf.account import Account
from ais_tar2tf.allocation import BATCHES, keep_freed
from ais_tar2tf.errors import ChecksumMismatch, ObjectChanged, ShardNotFound, StoreError, Tar2TFError, TransportError
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.forking import at_fork
from ais_tar2tf.options import KIB, MIB, Read
from ais_tar2tf.retries import Tries
from ais_tar2tf.stores import Body, Identity, Interrupt, Keeper, Ranges, Store

__all__ = ["Fetch", "Span"]

_LOG = logging.getLogger(__name__)  # of what is tried again; errors are raised, and never logged
_BLOCK = 2 * MIB  # large enough that a system call and a numpy pass cost little, small enough for the cache
_FIRST_BLOCK = 64 * KIB  # the first record should not wait for a megabyte; blocks double from here
_TOGETHER = 128  # ranges in one request, where a store gives many at once
_TOGETHER_BYTES = 2 * MIB  # and the bytes of all of them: they are held twice for a moment
_CHECKED = 64  # one in so many of these goes by itself, and says which content the shard has: AisStore.read_many
_AHEAD_OF_JUMPS = 4 * MIB  # where much is jumped over, reading far ahead would fetch just that


@dataclass(frozen=True, slots=True)
class Span:
    """One shard to be fetched, `start` to `stop` (None: its end); `identity` binds it to what was seen before."""

    name: str
    start: int = 0
    identity: Identity = field(default_factory=Identity)
    stop: int | None = None


@dataclass(slots=True, eq=False)
class _Shard:
    """What is known of a shard while it is fetched."""

    span: Span
    identity: Identity
    size: int | None = None
    planned: int = 0  # offset up to which parts were made
    whole: bool = False  # every part was made
    given_up: bool = False
    ranged: bool = False  # its store answered with less than all of it
    window: int = 0  # bytes to ask for next, once there was a jump: what is behind it may not be wanted either

    @property
    def end(self) -> int | None:
        """Where reading ends, once the size is known."""
        if self.size is None or self.span.stop is None:
            return self.size
        return min(self.size, self.span.stop)


@dataclass(slots=True, eq=False)
class _Part:
    """A range of one shard, and the blocks of it that have come."""

    shard: _Shard
    start: int
    stop: int | None  # None: to the end, wherever that is
    place: int  # bytes planned before it, over all shards: what the bound of the read-ahead counts in
    blocks: deque[tuple[memoryview, int]] = field(default_factory=deque[tuple[memoryview, int]])
    received: int = 0
    done: bool = False
    error: StoreError | None = None


class Fetch:
    """Reads `spans` one after another: `next_shard`, then `read` until it gives nothing, and so on.

    With `connections=1` a shard is one request; with more it is asked for in ranges of `range_bytes`.
    """

    def __init__(
        self,
        store: Store,
        spans: Iterator[Span],
        read: Read,
        account: Account,
        *,
        read_ahead_bytes: int | None = None,
        tuning: Tuning | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._spans = spans
        self._read = read
        self._account = account
        self._most_ahead = max(_BLOCK, read_ahead_bytes or read.limits.read_ahead_bytes)
        self._tuning = tuning or Tuning(replace(read, most_connections=0))
        self._tuning.pause()
        self._active = 0  # workers that fetch something
        self._draw = draw
        self._lock = threading.Condition()
        self._parts: deque[_Part] = deque()  # planned, in delivery order; the first is being delivered
        self._waiting: deque[_Part] = deque()  # of these, the ones that no worker has begun
        self._planning: _Shard | None = None
        self._no_more = False
        self._failed: Exception | None = None  # what `spans` raised
        self._planned = 0  # bytes, over all shards
        self._consumed = 0
        self._asked: dict[str, int] = {}  # parts of each shard that could go together
        self._hungry: _Part | None = None  # what the reader waits for
        self._closed = False
        self._why_closed = "the reader was closed"
        self._workers: list[threading.Thread] = []
        self._interrupts: dict[Interrupt, _Shard] = {}  # of the requests under way
        self._spare: list[memoryview] = []
        self._lent: memoryview | None = None
        self._current: _Shard | None = None
        self._delivered = 0  # offset in the current shard
        keep_freed(BATCHES)
        self._checksum: Checksum | None = None  # of the whole shard, when it is read from its start
        _open_fetches.add(self)
        at_fork(self)

    @property
    def _ahead(self) -> int:
        """Bytes that may be under way: what is this stream's, as far as it pays off."""
        return max(_BLOCK, min(self._most_ahead, self._tuning.read_ahead))

    # The reader's side.

    def next_shard(self) -> Span | None:
        """Go to the next shard, giving up what is left of this one; None behind the last."""
        with self._lock:
            self._drop_current()
            while not self._parts:
                if not self._plan():
                    if self._failed is not None:
                        raise self._failed
                    return None
            self._current = self._parts[0].shard
            self._delivered = self._current.span.start
            self._checksum = None
            self._start_workers()
            return self._current.span

    def read(self) -> memoryview:
        """The next bytes of this shard, valid until the next call; empty at its end, once that is proved."""
        with self._lock:
            self._take_back_lent()
            block = self._next_block()
        if block is None:
            self._verify()
            return memoryview(b"")
        buffer, count = block
        self._lent = buffer
        self._account.add(bytes=count)
        self._note(time.perf_counter(), count, 0.0)
        data = buffer[:count]
        if self._delivered == 0 and self._current is not None and self._current.span.stop is None:
            self._checksum = Checksum.stated_by(self.identity)
        if self._checksum is not None:
            self._checksum.update(data)
        self._delivered += count
        return data

    def jump(self, count: int) -> int:
        """Leave out the next `count` bytes, which nobody wants, if that pays; how many are left out.

        They are not received then, and the checksum of the whole shard cannot be verified any more.
        """
        with self._lock:
            shard, limit = self._current, self._read.jump_bytes
            if shard is None or not shard.ranged or not limit or count - self._arrived() < limit:
                return 0
            assert shard.end is not None
            count = min(count, shard.end - self._delivered)
            self._go_on_at(shard, self._delivered + count)
            self._checksum = None
            return count

    def _arrived(self) -> int:
        """Bytes of the current shard that wait to be read."""
        of_shard = (part for part in self._parts if part.shard is self._current)
        return sum(size for part in of_shard for _, size in part.blocks)

    @property
    def identity(self) -> Identity:
        """Of the current shard, as the store stated it; complete once the first bytes are there."""
        assert self._current is not None
        return self._current.identity

    @property
    def size(self) -> int | None:
        """Of the current shard, where its store says it; known once the first bytes are there."""
        assert self._current is not None
        return self._current.size

    @property
    def closed(self) -> bool:
        return self._closed

    def forked(self) -> None:
        """A child has none of the threads, and its parent goes on with the sockets."""
        self._lock = threading.Condition()
        self._interrupts.clear()
        self._workers.clear()
        self._closed = True
        self._why_closed = "this reading was begun before the process was forked; begin a new one in the child"
        _open_fetches.discard(self)

    def close(self) -> None:
        """No thread and no socket is left when this returns."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            interrupts = list(self._interrupts)
        for interrupt in interrupts:
            interrupt.fire()
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(self._read.timeouts.connect + 2)
        self._workers.clear()
        with self._lock:
            self._spare.clear()
            self._parts.clear()
            self._waiting.clear()
        _open_fetches.discard(self)

    def _next_block(self) -> tuple[memoryview, int] | None:
        """The next block in order; None at the end of the shard. Waits."""
        shard = self._current
        while True:
            if self._closed:
                raise StoreError(self._why_closed, url=self._store.url(shard.span.name if shard else ""))
            while self._parts and self._parts[0].shard is shard and self._is_drained(self._parts[0]):
                self._parts.popleft()
                self._lock.notify_all()
            part = self._parts[0] if self._parts else None
            if part is None or part.shard is not shard:
                if shard is not None and shard.window and not shard.whole:
                    self._plan_window(shard)
                    continue
                if shard is None or shard.whole or not self._plan():
                    return None
                continue
            if part.blocks:
                block = part.blocks.popleft()
                self._consumed += 0 if shard is not None and shard.window else block[1]
                self._lock.notify_all()
                return block
            if part.error is not None:
                raise part.error
            self._hungry = part
            began = time.perf_counter()
            self._lock.wait()
            ended = time.perf_counter()
            self._account.add(network_wait=ended - began)
            self._note(ended, 0, ended - began)
            self._hungry = None

    def _note(self, now: float, received: int, waited: float) -> None:
        if chosen := self._tuning.note(now, received, waited):
            self._account.chose(chosen)

    @staticmethod
    def _is_drained(part: _Part) -> bool:
        return part.done and not part.blocks and part.error is None

    def _take_back_lent(self) -> None:
        if self._lent is not None and len(self._lent) == _BLOCK and len(self._spare) * _BLOCK < self._ahead:
            self._spare.append(self._lent)
        self._lent = None

    def _drop_current(self) -> None:
        """Forget the parts of the shard being delivered, and end the requests for them."""
        shard = self._current
        if shard is None:
            return
        shard.given_up = shard.whole = True
        for interrupt, of in self._interrupts.items():
            if of is shard:
                interrupt.fire()
        while self._parts and self._parts[0].shard is shard:
            self._parts.popleft()
        self._waiting = deque(part for part in self._waiting if part.shard is not shard)
        if self._planning is shard:
            self._planning = None
        self._consumed = self._parts[0].place if self._parts else self._planned
        self._current = None
        self._lock.notify_all()

    def _verify(self) -> None:
        """The shard is at its end: it has its length, and the checksum that the store states."""
        shard = self._current
        assert shard is not None
        url = self._store.url(shard.span.name)
        if shard.end is not None and self._delivered != shard.end:
            raise TransportError(f"{self._delivered:,} bytes came of {shard.end:,}", url=url)
        if self._checksum is not None:
            try:
                self._checksum.verify(shard.identity, url)
            except ChecksumMismatch:
                if isinstance(self._store, Keeper):
                    self._store.forget(shard.span.name)
                raise
            self._checksum = None

    # Planning: under the lock.

    def _plan(self) -> bool:
        """Make the next part if it can be told which; False when there is nothing more to plan."""
        if self._no_more:
            return False
        shard = self._planning
        if shard is None:
            try:
                span = next(self._spans, None)
            except Exception as error:  # noqa: BLE001  # it may be a worker that plans: the reader raises this
                self._failed, span = error, None
            if span is None:
                self._no_more = True
                return False
            shard = self._planning = _Shard(span, span.identity, self._size_known(span), planned=span.start)
        stops = [shard.span.stop, shard.end]
        if self._read.connections > 1:
            stops.append(shard.planned + self._tuning.range_bytes)
        stop = min((stop for stop in stops if stop is not None), default=None)
        if self._read.connections == 1 and shard.span.stop is None:
            stop = None
        part = _Part(shard, shard.planned, stop, self._planned)
        self._parts.append(part)
        self._waiting.append(part)
        if shard.size is None:
            self._planning = shard  # what comes next is not known before its first answer
        else:
            self._note_planned(part, part.stop if part.stop is not None else shard.size)
        self._lock.notify_all()
        return True

    def _size_known(self, span: Span) -> int | None:
        """Beforehand, of a few bytes of a shard that an index knows: what comes next can then be asked for, too."""
        size = span.identity.size
        if size is None or span.stop is None or span.stop > size:
            return None
        return size if span.stop - span.start <= self._read.range_bytes else None

    def _go_on_at(self, shard: _Shard, target: int) -> None:
        """Leave out what is before `target`: end its requests, and ask for a little from there on."""
        self._drop_current()
        self._most_ahead = min(self._most_ahead, _AHEAD_OF_JUMPS)
        span = replace(shard.span, start=target)
        rest = _Shard(span, shard.identity, shard.size, planned=target, ranged=True, window=_FIRST_BLOCK)
        self._current, self._delivered = rest, target
        self._plan_window(rest)

    def _plan_window(self, rest: _Shard) -> None:
        """The next part behind a jump, twice as large as the one before. The shard counts as consumed already."""
        assert rest.end is not None
        stop = min(rest.planned + rest.window, rest.end)
        rest.whole = stop == rest.end
        if stop > rest.planned:
            part = _Part(rest, rest.planned, stop, self._consumed)
            self._parts.appendleft(part)
            self._waiting.appendleft(part)
        rest.planned = stop
        rest.window = min(2 * rest.window, self._tuning.range_bytes)
        self._lock.notify_all()

    def _note_planned(self, part: _Part, stop: int) -> None:
        """`part` reaches to `stop`: what was planned, and whether the shard is planned whole, follow."""
        shard = part.shard
        self._planned = part.place + (stop - part.start)
        shard.planned = stop
        if shard.end is not None and stop >= shard.end:
            shard.whole = True
            if self._planning is shard:
                self._planning = None

    def _note_answer(self, part: _Part, body: Body) -> None:
        """The first answer of a shard tells its size, and whether ranges are honoured."""
        shard = part.shard
        with self._lock:
            if shard.size is not None or shard.given_up:
                return
            shard.identity = shard.identity.completed_by(body.info.identity)
            shard.size = size = self._size_told(part, body)
            end = shard.end
            if size is None or end is None:
                part.stop = shard.span.stop  # all of it comes in this answer
            else:
                answered = size if body.stop is None else body.stop
                shard.ranged = answered < size
                if part.stop is None or part.stop > end or answered > part.stop:
                    part.stop = end  # or the store knows no ranges: this answer brings all that is left
                self._note_planned(part, part.stop)
                self._fill_plan()
            self._lock.notify_all()

    def _size_told(self, part: _Part, body: Body) -> int | None:
        if body.info.size is not None or body.stop is None:
            return body.info.size
        if part.stop is None:  # "bytes 5-9/*" to a request without an end
            return body.stop
        raise StoreError(
            "the server gives ranges without saying how long the object is; read it with connections=1",
            url=self._store.url(body.info.name),
        )

    def _fill_plan(self) -> None:
        """Plan as far as the read-ahead reaches, and start the workers for it."""
        while self._can_plan() and self._plan():
            pass
        self._start_workers()

    def _can_plan(self) -> bool:
        unknown = self._planning is not None and self._planning.size is None
        return not unknown and len(self._waiting) == 0 and self._planned - self._consumed < self._ahead

    def _start_workers(self) -> None:
        wanted = min(self._tuning.connections, len(self._parts))
        while len(self._workers) < wanted and not self._closed:
            worker = threading.Thread(target=self._work, name="ais_tar2tf-fetch", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # no more threads are to be had: those there are do it all
                if not self._workers:
                    raise
                return
            self._workers.append(worker)

    # The workers' side.

    def _work(self) -> None:
        while parts := self._claim():
            try:
                for part in self._fetched_together(parts) if len(parts) > 1 else parts:
                    self._fetch_to_end(part)
            finally:
                with self._lock:
                    self._active -= 1
                    self._lock.notify_all()

    def _fetch_to_end(self, part: _Part) -> None:
        try:
            self._fetch(part)
        except StoreError as error:
            self._end_part(part, error)
        except Exception as error:  # noqa: BLE001  # a worker that dies silently would leave its reader waiting
            self._end_part(part, _unexpected(error, self._store.url(part.shard.span.name)))
        else:
            self._end_part(part, None)

    def _fetched_together(self, parts: list[_Part]) -> list[_Part]:
        """Fetch what a store gives in one answer; the parts that are left are for requests of their own.

        Such an answer does not say which content its bytes are of: every so many parts of a shard one goes by itself.
        """
        with self._lock:
            left = [part for part in parts if self._goes_alone(part)]
        together = [part for part in parts if part not in left]
        wanted = [(part.shard.span.name, part.start, part.stop or part.start) for part in together]
        try:
            bodies = self._store.read_many(wanted) if isinstance(self._store, Ranges) and wanted else None
        except Exception:  # noqa: BLE001  # whatever it was, single requests will tell
            bodies = None
        if bodies is None:
            return parts
        for part, data in zip(together, bodies, strict=True):
            if data is None:
                left.append(part)
                continue
            with self._lock:
                part.blocks.append((memoryview(bytearray(data)), len(data)))
                part.received = len(data)
            self._end_part(part, None)
        return left

    def _goes_alone(self, part: _Part) -> bool:
        name = part.shard.span.name
        self._asked[name] = number = self._asked.get(name, -1) + 1
        return number % _CHECKED == 0

    def _claim(self) -> list[_Part]:
        """The earliest part that nobody has begun and that the bound allows, or several; [] when closed."""
        with self._lock:
            while not self._closed:
                if not self._waiting:
                    self._fill_plan()
                is_wanted = self._waiting and self._waiting[0].place - self._consumed < self._ahead
                if is_wanted and self._active < max(1, self._tuning.connections):
                    self._active += 1
                    parts = self._claim_small([self._waiting.popleft()])
                    self._fill_plan()  # for the next worker
                    return parts
                self._lock.wait()
            return []

    def _claim_small(self, parts: list[_Part]) -> list[_Part]:
        """And what comes next, as long as a store that gives many ranges at once does well to give it with these."""
        size = self._small(parts[0])
        if not isinstance(self._store, Ranges) or not size:
            return parts
        while len(parts) < _TOGETHER:
            if not self._waiting and not (self._can_plan() and self._plan()):
                break
            more = self._small(self._waiting[0])
            if not more or size + more > _TOGETHER_BYTES:
                break
            size += more
            parts.append(self._waiting.popleft())
        return parts

    @staticmethod
    def _small(part: _Part) -> int:
        """Its bytes, if it is a part of a shard that is known beforehand; else 0."""
        if part.stop is None or part.shard.size is None or part.shard.span.stop != part.stop:
            return 0
        size = part.stop - part.start
        return size if part.start == part.shard.span.start and size <= _TOGETHER_BYTES // 2 else 0

    def _end_part(self, part: _Part, error: StoreError | None) -> None:
        with self._lock:
            part.done = True
            part.error = error
            if part.shard.size is None and not part.shard.given_up:
                part.shard.whole = True
                if self._planning is part.shard:
                    self._planning = None
                self._planned = max(self._planned, part.place + part.received)
            self._lock.notify_all()

    def _fetch(self, part: _Part) -> None:
        """Fill the part, with as many requests as it takes. The budget of retries begins again with progress."""
        tries = Tries(self._read.retry)
        while not self._is_over(part):
            before = part.received
            try:
                self._fetch_once(part)
            except ShardNotFound as error:
                raise self._gone(part, error) from error
            except TransportError as error:
                if self._is_over(part):
                    return
                delay = tries.after_failure(self._draw, progress=part.received > before, asked=error.retry_after)
                if delay is None:
                    raise self._exhausted(error, tries.failed) from error
                _LOG.info("%s. Trying again, at most %d times.", error, self._read.retry.attempts)
                self._account.add(retries=1, resumes=1 if part.start + part.received else 0)
                self._wait(delay)
            else:
                return

    def _is_over(self, part: _Part) -> bool:
        full = part.stop is not None and part.received >= part.stop - part.start and part.shard.size is not None
        return self._closed or part.shard.given_up or full

    def _fetch_once(self, part: _Part) -> None:
        shard, interrupt = part.shard, Interrupt()
        with self._lock:
            if self._is_over(part):
                return
            self._interrupts[interrupt] = shard
        try:
            begin = part.start + part.received
            asked = time.perf_counter()
            body = self._store.open(shard.span.name, begin, part.stop, interrupt=interrupt)
            self._tuning.answered(time.perf_counter() - asked)
            try:
                self._check(body, shard, begin)
                self._note_answer(part, body)
                self._skip_to(body, begin)
                self._receive(part, body)
            finally:
                body.close()
        finally:
            with self._lock:
                del self._interrupts[interrupt]

    def _check(self, body: Body, shard: _Shard, begin: int) -> None:
        """It is the same object as before, and as long as it was."""
        url, size = self._store.url(shard.span.name), body.info.size
        shard.identity.check(body.info.identity, url)
        if size is not None and size < begin:
            raise ObjectChanged(f"it has {size:,} bytes, and was to be read on from byte {begin:,}", url=url)

    def _skip_to(self, body: Body, begin: int) -> None:
        """A server without ranges sends everything again: read past what we have."""
        left = begin - body.start
        buffer = memoryview(bytearray(min(left, _BLOCK)))
        while left > 0:
            count = body.readinto(buffer[:left])
            if not count:
                raise TransportError(f"it ended before byte {begin:,}", url=self._store.url(body.info.name))
            left -= count

    def _receive(self, part: _Part, body: Body) -> None:
        block_size = _FIRST_BLOCK if part.start == part.shard.span.start else _BLOCK
        while True:
            left = None if part.stop is None else part.stop - part.start - part.received
            size = min(_BLOCK, block_size)
            if left == 0 or not self._wait_for_room(part, size if left is None else min(size, left)):
                return
            block = self._new_block(size)
            count = self._fill(part, body, block, left)
            if not count:
                if left is not None:
                    raise TransportError(f"it ended {left:,} bytes early", url=self._store.url(body.info.name))
                return
            block_size *= 2

    def _fill(self, part: _Part, body: Body, block: memoryview, left: int | None) -> int:
        """Fill one block and hand it over; less than full only at the end, or while the reader waits."""
        view = block if left is None else block[:left]
        have = 0
        try:
            while have < len(view):
                count = body.readinto(view[have:])
                have += count
                if not count or self._hungry is part:
                    break
        finally:
            if have:
                with self._lock:
                    part.received += have
                    part.blocks.append((block, have))
                    if part.stop is None and not part.shard.given_up:
                        self._planned = max(self._planned, part.place + part.received)
                    self._lock.notify_all()
        return have

    def _wait_for_room(self, part: _Part, size: int) -> bool:
        """Until the bound of the read-ahead allows `size` more bytes; False when nobody wants them any more."""
        with self._lock:
            while not self._closed and not part.shard.given_up:
                ahead = part.place + part.received - self._consumed
                if ahead <= 0 or ahead + size <= self._ahead:
                    return True
                self._lock.wait()
            return False

    def _new_block(self, size: int) -> memoryview:
        with self._lock:
            if size == _BLOCK and self._spare:
                return self._spare.pop()
        return np.empty(size, np.uint8).data  # unlike a bytearray it is not filled with zeros first

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._lock:
            while not self._closed and (left := deadline - time.monotonic()) > 0:
                self._lock.wait(left)

    def _gone(self, part: _Part, error: ShardNotFound) -> ShardNotFound:
        if not part.start + part.received and part.shard.size is None:
            return error
        return ShardNotFound(
            "the object was there when this shard was begun and can no longer be found: deleted, or its target is "
            "down; nothing of it was skipped",
            url=error.url,
        )

    def _exhausted(self, error: TransportError, tried: int) -> TransportError:
        return TransportError(
            f"{error.message.removeprefix(f'{error.url}: ')}; given up after {tried} tries without progress "
            "(Retry.attempts)",
            url=error.url,
            retry_after=error.retry_after,
        )


def _unexpected(error: Exception, url: str) -> StoreError:
    if isinstance(error, Tar2TFError):
        return StoreError(str(error), url=url)
    failure = StoreError(f"fetching failed unexpectedly ({type(error).__name__}: {error})", url=url)
    failure.__cause__ = error
    return failure


_open_fetches: weakref.WeakSet[Fetch] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for fetch in list(_open_fetches):
        fetch.close()
