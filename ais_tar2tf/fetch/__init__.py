"""Shards → blocks of bytes, in order, read ahead over several connections and bounded; the only threads of the path.

A shard is asked for in *parts* (ranges), as `_planning` says; workers fill the earliest of them (`_receiving`), and
the reader takes their blocks in order.
"""

from __future__ import annotations

import atexit
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

from ais_tar2tf import forking
from ais_tar2tf.account import Account
from ais_tar2tf.allocation import BATCHES, keep_freed
from ais_tar2tf.errors import ChecksumMismatch, StoreError, TransportError
from ais_tar2tf.fetch._parts import Block, Part, Span
from ais_tar2tf.fetch._planning import Planning
from ais_tar2tf.fetch._receiving import Receiving
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Identity, Keeper, Store
from ais_tar2tf.waits import Wait

__all__ = ["Fetch", "Span", "close_all"]


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
        if _ending.is_set():
            raise StoreError("the program ends; shards are read before that", url=store.url(""))
        self._store = store
        self._read = read
        self._account = account
        self._tuning = tuning or Tuning(replace(read, most_connections=0))
        self._tuning.pause()
        self._receiving = receiving = Receiving(store, read, account, draw, self._tuning.answered)
        ahead = read_ahead_bytes or read.limits.read_ahead_bytes
        self._planning = Planning(store, spans, read, self._tuning, ahead, lambda: receiving.lock.notify_all())
        receiving.planning = self._planning
        self._active = 0  # workers that fetch something
        self._fetching: int | None = None  # the reader's thread, while it fetches something itself
        self._why_closed = "the reader was closed"
        self._workers: list[threading.Thread] = []
        self._lent: memoryview | None = None
        self._wait = Wait()
        self._waited_for: Part | None = None
        keep_freed(BATCHES)
        self._checksum: Checksum | None = None  # of the whole shard, when it is read from its start
        _open_fetches.add(self)
        forking.at_fork(self)

    @property
    def _lock(self) -> threading.Condition:
        return self._receiving.lock

    # The reader's side.

    def next_shard(self) -> Span | None:
        """Go to the next shard, giving up what is left of this one; None behind the last."""
        with self._lock:
            self._receiving.give_up(self._planning.leave(), at_once=True)
            span = self._planning.next_shard()
            self._checksum = None
            if span is not None:
                self._start_workers()
            return span

    def read(self) -> memoryview:
        """The next bytes of this shard, valid until the next call; empty at its end, once that is proved."""
        self._take_back_lent()
        at = self._planning.delivered
        block = self._next_block()
        if block is None:
            self._verify()
            return memoryview(b"")
        self._lent = block.buffer
        data = block.buffer[block.begin : block.end]
        self._account.add(bytes=len(data))
        self._note(time.perf_counter(), len(data), 0.0)
        shard = self._planning.current
        if at == 0 and shard is not None and shard.span.stop is None:
            self._checksum = Checksum.stated_by(self.identity)
        if self._checksum is not None:
            self._checksum.update(data)
        return data

    def has_come(self, *, wait: bool = False) -> bool:
        """Whether `read` will give the next bytes, or say that there are none, without waiting."""
        while True:
            with self._lock:
                part = None if self.closed else self._planning.due()
                if part is None or part.blocks or part.error is not None:
                    self._end_wait()
                    return True
                if not wait:
                    return False
                self._start_workers()
                self._wait_for(part)

    def jump(self, count: int) -> int:
        """Leave out the next `count` bytes, which nobody wants, if that pays; how many are left out.

        They are not received then, and the checksum of the whole shard cannot be verified any more.
        """
        with self._lock:
            count, given_up = self._planning.jump(count)
            if count:
                self._receiving.give_up(given_up)
                self._checksum = None
            return count

    @property
    def identity(self) -> Identity:
        """Of the current shard, as the store stated it; complete once the first bytes are there."""
        shard = self._planning.current
        assert shard is not None
        return replace(shard.identity, seen=shard.seen or shard.identity.seen) if shard.unproved else shard.identity

    @property
    def size(self) -> int | None:
        """Of the current shard, where its store says it; known once the first bytes are there."""
        assert self._planning.current is not None
        return self._planning.current.size

    @property
    def closed(self) -> bool:
        return self._receiving.closed

    def forked(self) -> None:
        """A child has none of the threads, and its parent goes on with the sockets."""
        self._receiving.forked()
        self._workers.clear()
        self._why_closed = "this reading was begun before the process was forked; begin a new one in the child"
        _open_fetches.discard(self)

    def close(self, *, grace: float = 0.0) -> None:
        """End every request; no thread and no socket is left when this returns.

        Workers get `grace` seconds to leave their requests by themselves; a cache then keeps these for the next
        reader, who goes on where this one stopped.
        """
        self._end_wait()
        self._receiving.close(grace)
        patience = self._read.timeouts.connect + 2
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(patience)
        self._workers.clear()
        with self._lock:
            self._lock.wait_for(lambda: self._fetching in (None, threading.get_ident()), patience)
            self._receiving.forget_spare()
            self._planning.clear()
        _open_fetches.discard(self)

    def _next_block(self) -> Block | None:
        """The next block in order; None at the end of the shard. Waits."""
        try:
            return self._waited_block()
        finally:
            self._end_wait()

    def _waited_block(self) -> Block | None:
        while True:
            with self._lock:
                self._check_open()
                part = self._planning.due()
                if part is None:
                    return None
                self._start_workers()
                if part.blocks:
                    block = self._planning.take(part)
                    if block is not None:
                        return block
                    continue
                if part.error is not None:
                    raise part.error
                if part.begun or not part.shard.jumps:
                    self._wait_for(part)
                    continue
                mine = self._planning.begin(part)  # so few bytes that another thread would cost more than they do
                self._fetching = threading.get_ident()
            self._fetch_here(mine)

    def _fetch_here(self, parts: list[Part]) -> None:
        began = time.perf_counter()
        self._begin_wait(parts[0])
        try:
            self._receiving.fetch_all(parts)
        finally:
            with self._lock:
                self._fetching = None
                self._lock.notify_all()
        self._note_wait(began)

    def _wait_for(self, part: Part) -> None:
        self._begin_wait(part)
        self._receiving.hungry = part
        began = time.perf_counter()
        self._lock.wait()
        self._receiving.hungry = None
        self._note_wait(began)

    def _begin_wait(self, part: Part) -> None:
        if self._waited_for is not part:
            self._waited_for = part
            self._wait.begin(self._store.url(part.shard.span.name), lambda: part.trouble)

    def _end_wait(self) -> None:
        if self._waited_for is not None:
            self._waited_for = None
            self._wait.end()

    def _note_wait(self, began: float) -> None:
        ended = time.perf_counter()
        self._account.add(network_wait=ended - began)
        self._note(ended, 0, ended - began)

    def _note(self, now: float, received: int, waited: float) -> None:
        if chosen := self._tuning.note(now, received, waited):
            self._account.chose(chosen)

    def _check_open(self) -> None:
        if self.closed:
            shard = self._planning.current
            raise StoreError(self._why_closed, url=self._store.url(shard.span.name if shard else ""))

    def _take_back_lent(self) -> None:
        if self._lent is not None:
            with self._lock:
                self._receiving.take_back(self._lent)
        self._lent = None

    def _verify(self) -> None:
        """The shard is at its end: it has its length, and the checksum that the store states."""
        shard, delivered = self._planning.current, self._planning.delivered
        assert shard is not None
        url = self._store.url(shard.span.name)
        if shard.end is not None and delivered != shard.end:
            raise TransportError(f"{delivered:,} bytes came of {shard.end:,}", url=url)
        if self._checksum is not None:
            try:
                self._checksum.verify(shard.identity, url)
            except ChecksumMismatch:
                if isinstance(self._store, Keeper):
                    self._store.forget(shard.span.name)
                raise
            self._checksum = None

    # The workers' side.

    def _start_workers(self) -> None:
        wanted = min(self._tuning.connections, len(self._planning.parts))
        while len(self._workers) < wanted and not self.closed:
            worker = threading.Thread(target=self._work, name="ais_tar2tf-fetch", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # no more threads are to be had: those there are do it all
                if not self._workers:
                    raise
                return
            self._workers.append(worker)

    def _work(self) -> None:
        while parts := self._claim():
            try:
                self._receiving.fetch_all(parts)
            finally:
                with self._lock:
                    self._active -= 1
                    self._lock.notify_all()

    def _claim(self) -> list[Part]:
        """What to fetch next; waits for it. [] when closed."""
        with self._lock:
            while not self.closed:
                parts = self._planning.claim() if self._active < max(1, self._tuning.connections) else []
                if parts:
                    self._active += 1
                    self._start_workers()
                    return parts
                self._lock.wait()
            return []


_open_fetches: weakref.WeakSet[Fetch] = weakref.WeakSet()
_ending = forking.event()


@atexit.register
def close_all() -> None:
    """Before the interpreter goes, and with it the threads for which readers wait; nobody opens another one."""
    _ending.set()
    for fetch in list(_open_fetches):
        fetch.close()
