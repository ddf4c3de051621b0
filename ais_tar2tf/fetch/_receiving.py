"""Parts → their bytes, with as many requests as it takes; run by workers, and by a reader that lands behind a jump.

Where a body breaks off, its part goes on from the byte after the last one that came, so no byte is lost and none
comes twice. A second answer must state the strong validator of the first. Where there is none, the shard is requested
as one body, and after a break from its start again: what came before is compared, by its hash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from ais_tar2tf import forking
from ais_tar2tf.account import Account
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, Tar2TFError, TransportError
from ais_tar2tf.fetch._parts import Block, Part, Shard
from ais_tar2tf.fetch._planning import BLOCK, Planning
from ais_tar2tf.fetch._prefix import Differs, Prefix
from ais_tar2tf.options import KIB, MIB, Read
from ais_tar2tf.retries import Tries, is_progress
from ais_tar2tf.stores import Body, Identity, Interrupt, Ranges, Store, asked

__all__ = ["Receiving"]

_LOG = logging.getLogger("ais_tar2tf.fetch")  # of what is tried again; errors are raised, and never logged
_FIRST_BLOCK = 64 * KIB  # the first record should not wait for a megabyte; blocks double from here
_CHECKED = 64  # one in so many ranges goes by itself and says which content the shard has: AisStore.read_many
_MOST_HELD = 128 * MIB  # behind a position, until they are proved: a shuffle window and its read-ahead fit in
_LET_COME = 256 * KIB  # of a request that nobody wants any more: less than a new connection costs


class Receiving:
    """What workers and reader share: the lock, the requests under way, blocks to be filled again."""

    def __init__(
        self, store: Store, read: Read, account: Account, draw: Callable[[], float], answered: Callable[[float], None]
    ) -> None:
        self.lock: threading.Condition = forking.condition()
        self.closed: bool = False
        self.hungry: Part | None = None  # what the reader waits for
        self.planning: Planning  # is given by who has it, and guarded by the lock
        self._store = store
        self._read = read
        self._account = account
        self._draw = draw
        self._answered = answered  # is told how long each answer took to begin
        self._interrupts: dict[Interrupt, Sequence[Part]] = {}  # of the requests under way
        self._spare: list[memoryview] = []
        self._asked: dict[str, int] = {}  # parts of each shard that could go together

    def forked(self) -> None:
        self._interrupts.clear()
        self.closed = True

    def close(self, grace: float) -> None:
        """End every request: within `grace` seconds its worker leaves it by itself, later it is interrupted."""
        with self.lock:
            self.closed = True
            self.lock.notify_all()
            for interrupt in self._interrupts if grace else ():
                interrupt.parting = True
            self.lock.wait_for(lambda: not self._interrupts, grace)
            interrupts = list(self._interrupts)
        for interrupt in interrupts:
            interrupt.fire()

    def forget_spare(self) -> None:
        self._spare.clear()

    def give_up(self, parts: Sequence[Part], *, at_once: bool = False) -> None:
        """Under the lock: end requests for what nobody wants any more; those that are nearly done, only `at_once`.

        A request that ends by itself leaves its connection to the next one.
        """
        for interrupt, of in self._interrupts.items():
            if all(part in parts for part in of) and (at_once or any(_is_long(part) for part in of)):
                interrupt.fire()

    def take_back(self, buffer: memoryview) -> None:
        """Under the lock: the reader is done with a block."""
        wanted = len(self._spare) * BLOCK < self.planning.ahead  # it may have become less
        if len(buffer) == BLOCK and not buffer.readonly and wanted:
            self._spare.append(buffer)

    def fetch_all(self, parts: Sequence[Part]) -> None:
        """Fill parts that were begun together. Whatever happens, each is done then, or has an error."""
        left = list(parts)
        try:
            if len(parts) > 1:
                left = self._fetched_together(parts)
            while left:
                self._fetch_to_end(left[0])
                left.pop(0)
        finally:
            for part in left:  # the program was interrupted
                self._end_part(part, StoreError("fetching was interrupted", url=self._url(part)))

    def _fetch_to_end(self, part: Part) -> None:
        try:
            self.fetch(part)
        except StoreError as error:
            self._end_part(part, error)
        except Exception as error:  # noqa: BLE001  # a worker that dies silently would leave its reader waiting
            self._end_part(part, _unexpected(error, self._url(part)))
        else:
            self._end_part(part, None)

    def _end_part(self, part: Part, error: StoreError | None) -> None:
        with self.lock:
            part.done = True
            part.error = error
            self.planning.note_end(part)
            self.lock.notify_all()

    def _url(self, part: Part) -> str:
        return self._store.url(part.shard.span.name)

    # Many parts by one request.

    def _fetched_together(self, parts: Sequence[Part]) -> list[Part]:
        """Fetch what a store gives in one answer; the parts that are left are for requests of their own.

        Such an answer may not say which content its bytes are of: every so many parts of a shard one goes by itself.
        """
        with self.lock:
            if self.closed:
                return list(parts)
            left = [part for part in parts if self._goes_alone(part)]
            together = [part for part in parts if part not in left]
            interrupt = Interrupt()
            self._interrupts[interrupt] = together
        try:
            answer = self._read_many(together, interrupt)
        finally:
            with self.lock:
                del self._interrupts[interrupt]
        if answer is None:
            return list(parts)
        for part, data in zip(together, answer, strict=True):
            if data is None:
                left.append(part)
                continue
            with self.lock:
                part.blocks.append(Block(data, 0, len(data)))
                part.received = len(data)
            self._end_part(part, None)
        return left

    def _read_many(self, parts: Sequence[Part], interrupt: Interrupt) -> Sequence[memoryview | None] | None:
        wanted = [(part.shard.span.name, part.start, part.stop or part.start) for part in parts]
        if not isinstance(self._store, Ranges) or not wanted:
            return None
        try:
            answer = self._store.read_many(wanted, interrupt=interrupt)
        except Exception:  # noqa: BLE001  # whatever it was, single requests will tell
            return None
        if answer is None:
            return None
        # AIStore's answer states nothing: `_goes_alone` is for that.
        if answer.identity != Identity() and not all(p.shard.identity.is_proved_by(answer.identity) for p in parts):
            return None
        return answer.pieces

    def _goes_alone(self, part: Part) -> bool:
        name = part.shard.span.name
        self._asked[name] = number = self._asked.get(name, -1) + 1
        return number % _CHECKED == 0

    # One part, by one request after the other.

    def fetch(self, part: Part) -> None:
        """Fill the part, with as many requests as it takes. The budget of retries begins again with progress."""
        tries, since = Tries(self._read.retry), time.monotonic()
        while not self._is_over(part):
            before, part.held_back = part.received, 0.0
            try:
                self.fetch_once(part)
            except ShardNotFound as error:
                raise self._gone(part, error) from error
            except TransportError as error:
                if self._is_over(part):
                    return
                began, since = since, time.monotonic()
                progress = is_progress(
                    part.received - before, since - began - part.held_back, self._read.timeouts.least_rate
                )
                delay = tries.after_failure(error, self._draw, progress=progress)
                if delay is None:
                    raise tries.given_up(error) from error
                _LOG.info("%s. Trying again, at most %d times.", error, self._read.retry.attempts)
                part.trouble = error
                self._account.add(retries=1, resumes=1 if part.start + part.received else 0)
                self._wait(delay)
            else:
                return

    def fetch_once(self, part: Part) -> None:
        interrupt = Interrupt()
        with self.lock:
            if self._is_over(part):
                return
            self._interrupts[interrupt] = (part,)
        try:
            body = self._answer(part, interrupt)
            try:
                with self.lock:
                    self.planning.note_answer(part, body)
                    self.lock.notify_all()
                self._pass_to(part, body)
                self._receive(part, body)
            except Differs as error:
                raise self._another(part) from error
            finally:
                body.close()
        finally:
            with self.lock:
                del self._interrupts[interrupt]

    def _answer(self, part: Part, interrupt: Interrupt) -> Body:
        """Request what is left of the part; of a shard without a strong validator all of it, in one body."""
        shard = part.shard
        begin, stop = part.start + part.received, part.stop
        if shard.unproved:
            begin, stop = shard.base, shard.span.stop
        body = self._opened(part, begin, stop, interrupt)
        if shard.unproved and _is_cut(body, shard, stop):
            body.close()
            body = self._opened(part, shard.base, shard.span.stop, interrupt)
        return body

    def _opened(self, part: Part, begin: int, stop: int | None, interrupt: Interrupt) -> Body:
        asked_at = time.perf_counter()
        body = self._store.open(part.shard.span.name, begin, stop, interrupt=interrupt)
        self._answered(time.perf_counter() - asked_at)
        try:
            shard, found = part.shard, body.info.identity
            if body.info.size == begin and shard.is_bound and not shard.identity.is_proved_by(found):
                # "You have all of it" (416) states nothing else: a HEAD does.
                found = asked(self._store, shard.span.name, interrupt).identity.completed_by(found)
            self._check(part, body.info.size, found)
        except StoreError:
            body.close()
            raise
        return body

    def _is_over(self, part: Part) -> bool:
        full = part.stop is not None and part.received >= part.stop - part.start and part.shard.size is not None
        return self.closed or part.given_up or full

    def _check(self, part: Part, size: int | None, found: Identity) -> None:
        """Check that this is the object whose other bytes came before, and that it is as long as it was."""
        shard, begin = part.shard, part.start + part.received
        url = self._store.url(shard.span.name)
        with self.lock:
            (shard.identity.prove if shard.is_bound else shard.identity.check)(found, url)
            if not shard.answered:
                shard.unproved = shard.unproved or not shard.identity.completed_by(found).is_strong
        if size is not None and size < begin:
            raise ObjectChanged(f"it has {size:,} bytes, and was to be read on from byte {begin:,}", url=url)

    def _another(self, part: Part) -> ObjectChanged:
        return ObjectChanged(
            "the object was replaced while it was read, or since the checkpoint was written: its first bytes are "
            "others now (the store states no strong ETag, version or checksum, so they were compared); start this "
            "shard again",
            url=self._url(part),
        )

    def _pass_to(self, part: Part, body: Body) -> None:
        """Read past the bytes that came before, and compare them where nothing else proves that they are the same."""
        shard, begin = part.shard, part.start + part.received
        if not shard.unproved:
            self._skip(body, begin - body.start)
            return
        self._skip(body, shard.base - body.start)
        again = Prefix(shard.span.identity.seen)
        self._skip(body, begin - shard.base, again)
        if part.prefix is not None and again.text != part.prefix.text:
            raise Differs
        part.prefix = again

    def _skip(self, body: Body, left: int, prefix: Prefix | None = None) -> None:
        buffer = memoryview(bytearray(min(max(0, left), BLOCK)))
        while left > 0:
            count = body.readinto(buffer[:left])
            if not count:
                raise TransportError(f"it ended {left:,} bytes early", url=self._store.url(body.info.name))
            if prefix is not None:
                prefix.add(buffer[:count])
            left -= count

    def _receive(self, part: Part, body: Body) -> None:
        block_size = _FIRST_BLOCK if part.start == part.shard.span.start else BLOCK
        while True:
            left = None if part.stop is None else part.stop - part.start - part.received
            if not left and left is not None and part.shard.unproved:
                self._check_end(part, body)
            size = block_size if left is None else min(block_size, left)
            if left == 0 or not self._wait_for_room(part, size):
                return
            count = self._fill(part, body, self._new_block(size), left)
            if not count:
                if left is not None:
                    raise TransportError(f"it ended {left:,} bytes early", url=self._store.url(body.info.name))
                if part.prefix is not None and part.prefix.is_pending:
                    raise Differs
                return
            block_size = min(BLOCK, 2 * block_size)

    def _check_end(self, part: Part, body: Body) -> None:
        """A second body may leave open how long the shard is: it must not be longer than the first one was."""
        if body.info.size is None and part.shard.span.stop is None and body.readinto(memoryview(bytearray(1))):
            raise Differs

    def _fill(self, part: Part, body: Body, block: memoryview, left: int | None) -> int:
        """Fill one block and hand it over; less than full only at the end, or while the reader waits."""
        view = block if left is None else block[:left]
        have = 0
        try:
            while have < len(view):
                count = body.readinto(view[have:])
                have += count
                if not count or self.hungry is part:
                    break
        finally:
            if have:
                self._deliver(part, block, have)
        return have

    def _deliver(self, part: Part, block: memoryview, count: int) -> None:
        """Hand over a block, or hold it while bytes that prove it are still to come."""
        prefix, seen = part.prefix, ""
        if prefix is not None:
            prefix.add(block[:count])
            seen = prefix.text
        with self.lock:
            part.trouble = None
            part.received += count
            part.held.append(Block(block, 0, count, seen))
            if prefix is None or not prefix.is_pending:
                part.blocks.extend(part.held)
                part.held.clear()
            self.planning.note_received(part)
            self.lock.notify_all()

    def _wait_for_room(self, part: Part, size: int) -> bool:
        """Until the bound of the read-ahead allows `size` more bytes; False when nobody wants them any more."""
        if part.prefix is not None and part.prefix.is_pending:
            self._check_held(part, part.prefix)
            return True
        with self.lock:
            while not self.closed and not part.given_up:
                if self.planning.has_room(part, size):
                    return True
                began = time.monotonic()
                self.lock.wait()
                part.held_back += time.monotonic() - began
            return False

    def _check_held(self, part: Part, prefix: Prefix) -> None:
        """Nobody takes these bytes before they are proved, so that the read-ahead's bound would never allow more."""
        held = prefix.expected_size - part.start
        if held > _MOST_HELD:
            raise ObjectChanged(
                "it is not certain that the object is still the one that the checkpoint is of: the store states no "
                f"strong ETag, version or checksum, and {held:,} bytes would have to be compared before the first "
                "record; start this shard again",
                url=self._url(part),
            )

    def _new_block(self, size: int) -> memoryview:
        with self.lock:
            if size > BLOCK // 2 and self._spare:
                return self._spare.pop()
        # The last block of a part is a little smaller: one of full size can be filled again.
        return np.empty(BLOCK if size > BLOCK // 2 else size, np.uint8).data  # a bytearray is filled with zeros first

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self.lock:
            while not self.closed and (left := deadline - time.monotonic()) > 0:
                self.lock.wait(left)

    def _gone(self, part: Part, error: ShardNotFound) -> ShardNotFound:
        if not part.start + part.received and part.shard.size is None:
            return error
        return ShardNotFound(
            "the object was there when this shard was begun and can no longer be found: deleted, or its target is "
            "down; nothing of it was skipped",
            url=error.url,
        )


def _is_cut(body: Body, shard: Shard, asked: int | None) -> bool:
    """Whether the answer to a request up to `asked` brings less than all of the shard that is wanted."""
    if body.stop is None:
        return False
    if body.info.size is None:
        return asked != shard.span.stop
    return body.start > shard.base or body.stop < min(body.info.size, shard.span.stop or body.info.size)


def _is_long(part: Part) -> bool:
    """Whether much of it has not come."""
    return part.stop is None or part.stop - part.start - part.received > _LET_COME


def _unexpected(error: Exception, url: str) -> StoreError:
    if isinstance(error, Tar2TFError):
        return StoreError(str(error), url=url)
    failure = StoreError(f"fetching failed unexpectedly ({type(error).__name__}: {error})", url=url)
    failure.__cause__ = error
    return failure
