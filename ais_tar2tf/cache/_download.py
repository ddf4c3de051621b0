"""Requests under way whose blocks are kept: one request serves every reader of this process that wants its blocks.

A reader receives from a request by itself. When another reader needs the block at which a request stands, it takes
the request over: it receives the rest of that block, which the first reader then finds on the shelf, and goes on. So
nobody waits for a reader that is paused, and no block is asked for twice. A reader that takes a sample parks its
request for the first epoch.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Protocol

from ais_tar2tf import forking
from ais_tar2tf.cache._shelf import BLOCK, BlockWriter, Place
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import Body, HandsOver, Identity, Interrupt

__all__ = ["Download", "Downloads"]

_SCRATCH = 64 * KIB  # received at once, of bytes that go to the shelf only
_NEAR = 8  # blocks that one reader receives for another before it comes to its own: as much as one range
_TICK = 0.1  # seconds between two looks whether the reader that waits was closed


class _Keeps(Protocol):
    """The caching store: it counts the faults of its shelf."""

    def url(self, name: str) -> str: ...

    def place(self, name: str, identity: Identity, number: int) -> Place: ...

    def writer(self, place: Place) -> BlockWriter | None: ...

    def write(self, act: Callable[[], None], writer: BlockWriter) -> bool: ...

    def give_up(self, writer: BlockWriter) -> None: ...


class Download:
    """One request for consecutive bytes of an object, whose whole blocks are kept. One reader at a time receives.

    It is locked when it is made, so that others wait for the answer; `begin` unlocks it.
    """

    def __init__(self, store: _Keeps, name: str, identity: Identity, at: int, reader: object) -> None:
        self._store = store
        self._name = name
        self._identity = identity
        self._lock = forking.lock()
        self._lock.acquire()
        self._reader: object | None = reader
        self._parked = False  # by a reader that left, and nothing was received since
        self._received = False  # whether anything was
        self._keeps = at % BLOCK == 0  # whether the bytes of this block are all kept
        self._body: Body | None = None
        self._writer: BlockWriter | None = None
        self.content: tuple[str, Identity] = (store.place(name, identity, 0).key, identity)
        self.at: int = at  # offset in the object of the next byte
        self.reaches: int = at  # the same, once what was received last is kept
        self.stop: int = at  # offset behind the last byte
        self.over: bool = False

    def begin(self, ask: Callable[[], Body], stop: int) -> Body:
        """Send the request for the bytes up to `stop`, and return the answer, which may bring others."""
        try:
            self._body = body = ask()
            self.at = self.reaches = body.start
            self.stop = stop
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()
        return body

    def never_mind(self) -> None:
        """Send no request."""
        self._end()
        self._lock.release()

    def leads_to(self, at: int) -> bool:
        """Whether the block of `at` is one of the next that this request brings, and keeps."""
        return 0 <= at // BLOCK - self.at // BLOCK <= _NEAR and at < self.stop and self._keeps

    def is_of(self, reader: object) -> bool:
        return self._reader is reader and not self.over

    def read(self, reader: object, at: int, buffer: memoryview, interrupt: Interrupt | None) -> int | None:
        """Receive into `buffer`; None where the reader's bytes from `at` on do not come next."""
        with self._locked(interrupt):
            if not self.is_of(reader) or self.at != at:
                return None
            return self._receive(buffer)

    def take_over(self, reader: object, at: int, stop: int, interrupt: Interrupt | None) -> bool:
        """Let `reader` receive, which wants the bytes `at` to `stop`, if the request stands at `at`, or will soon.

        In the second case the blocks up to that of `at` are received, to the shelf, before this returns.
        """
        with self._locked(interrupt):
            if self.over or not (self.at == at or self.leads_to(at)):
                return False
            if self._reader is None:  # it was parked: what is behind `stop`, others ask for at the same time
                self.stop = min(self.stop, max(stop, (self.at // BLOCK + 1) * BLOCK))
            if self._reader is not reader:
                self._hand_over(reader, interrupt)
            while self.at != at and self.at // BLOCK <= at // BLOCK and not self.over:
                self._receive_block()
            return True

    def receive_block(self, interrupt: Interrupt | None) -> None:
        """Receive the block at which the request stands; it is on the shelf then, if that can keep it."""
        with self._locked(interrupt):
            self._receive_block()

    def skip_to(self, at: int, interrupt: Interrupt | None) -> None:
        """Receive the bytes up to `at` and forget them: a server without ranges sends everything again."""
        scratch = memoryview(bytearray(min(_SCRATCH, max(0, at - self.at))))
        with self._locked(interrupt):
            while self.at < at:
                if not self._receive(scratch[: at - self.at], keep=False):
                    raise TransportError(f"it ended before byte {at:,}", url=self._store.url(self._name))

    def leave(self, reader: object, *, park: bool) -> bool:
        """End the request, unless another reader took it over, and return False.

        Or `park` it for the next reader, where that is possible, and return True. What is missing of the block at
        which it stands is received before that, so that small objects are complete.
        """
        while self._reader is reader:
            if not self._lock.acquire(timeout=_TICK):
                continue  # somebody is taking it over
            try:
                if self._reader is not reader:
                    return False
                if park:
                    self._try_to_receive_block()
                if not park or self.over or not isinstance(self._body, HandsOver):
                    self._end()
                    return False
                self._hand_over(None, None)
                self._parked = True
            finally:
                self._lock.release()
        return self._parked

    def end_if_parked(self) -> None:
        """End the request if nobody took it over since it was parked."""
        if self._lock.acquire(blocking=False):
            if self._reader is None:
                self._end()
            self._lock.release()

    @contextlib.contextmanager
    def _locked(self, interrupt: Interrupt | None) -> Generator[None]:
        _wait(self._lock.acquire, interrupt, self._store.url(self._name))
        try:
            yield
        finally:
            self._lock.release()

    def _hand_over(self, reader: object | None, interrupt: Interrupt | None) -> None:
        self._reader = reader
        if isinstance(self._body, HandsOver):
            self._body.hand_over(interrupt)

    def _receive_block(self) -> None:
        end = min(self.stop, (self.at // BLOCK + 1) * BLOCK)
        scratch = memoryview(bytearray(_SCRATCH))
        while not self.over and self.at < end:
            self._receive(scratch[: end - self.at])

    def _try_to_receive_block(self) -> None:
        if self._writer is not None or not self._received:
            with contextlib.suppress(Exception):  # then it is asked for again
                self._receive_block()

    def _receive(self, buffer: memoryview, *, keep: bool = True) -> int | None:
        """Bytes that came; None where the server gave the request up while it was parked."""
        assert self._body is not None
        was_parked, self._parked = self._parked, False
        try:
            count = self._body.readinto(buffer[: self.stop - self.at])
            self.reaches = self.at + count
            if keep:
                self._keep(buffer[:count])
        except BaseException as error:
            self._end()
            if was_parked and isinstance(error, TransportError):
                return None
            raise
        self._received = True
        self.at = self.reaches
        if not count or self.at >= self.stop:
            self._end()
        return count

    def _keep(self, data: memoryview) -> None:
        at = self.at
        while data:
            number, within = divmod(at, BLOCK)
            place = self._store.place(self._name, self._identity, number)
            piece = data[: place.length - within]
            if not within:
                self._writer = self._store.writer(place)
                self._keeps = self._writer is not None
            if self._writer is not None:
                self._give(self._writer, piece, is_last=within + len(piece) == place.length)
            at += len(piece)
            data = data[len(piece) :]

    def _give(self, writer: BlockWriter, piece: memoryview, *, is_last: bool) -> None:
        given = self._store.write(lambda: writer.add(piece), writer)
        if not given or (is_last and (self._store.write(writer.commit, writer) or True)):
            self._writer = None

    def _end(self) -> None:
        self.over = True
        self._reader = None
        if self._writer is not None:
            self._store.give_up(self._writer)
            self._writer = None
        if self._body is not None:
            self._body.close()


class Downloads:
    """The requests under way over one shelf, and the objects that are being asked for the first time."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._under_way: weakref.WeakSet[Download] = weakref.WeakSet()
        self._asked: dict[str, threading.Event] = {}  # set when the answer has come
        forking.at_fork(self)

    def forked(self) -> None:
        """They are the parent's."""
        self._under_way.clear()
        self._asked.clear()

    def add(self, download: Download) -> None:
        with self._lock:
            self._under_way.add(download)

    def find(
        self,
        content: tuple[str, Identity],
        at: int,
        make: Callable[[], Download],
        *,
        tried: set[Download],
    ) -> tuple[Download, bool]:
        """Return a request that leads to `at`, but none of `tried`, and False; or a new one, and True."""
        with self._lock:
            for each in self._under_way:
                if each.content != content or each.over or each in tried:
                    continue
                if each.at // BLOCK <= at // BLOCK <= each.reaches // BLOCK or each.leads_to(at):
                    return each, False
            made = make()
            self._under_way.add(made)
            return made, True

    def next_block(self, content: tuple[str, Identity], number: int) -> int | None:
        """Return the number of the first block from `number` on at which a request stands."""
        with self._lock:
            found = [each.at // BLOCK for each in self._under_way if each.content == content and not each.over]
        return min((each for each in found if each >= number), default=None)

    @contextlib.contextmanager
    def asking(self, key: str, interrupt: Interrupt | None, url: str) -> Generator[bool]:
        """Wait while another reader asks for the first byte of an object; yield whether there was one.

        Its answer tells the object's content, and with that, whether the same bytes are wanted.
        """
        with self._lock:
            others = self._asked.get(key)
            if others is None:
                self._asked[key] = forking.event()
        if others is not None:
            _wait(others.wait, interrupt, url)
        try:
            yield others is not None
        finally:
            if others is None:
                with self._lock:
                    self._asked.pop(key).set()


def _wait(until: Callable[..., bool], interrupt: Interrupt | None, url: str) -> None:
    """Wait until `until(timeout=…)` returns True, or the reader is closed."""
    while not until(timeout=_TICK):
        if interrupt is not None and interrupt.fired:
            raise TransportError("the reader was closed", url=url)
