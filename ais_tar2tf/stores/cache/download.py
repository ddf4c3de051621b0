"""Requests under way whose blocks are cached: one request serves all readers of this process that want its blocks.

A reader receives the bytes of its request itself. When another reader needs the block at which the request stands, it
takes the request over: it receives the rest of that block, which the first reader then finds in the cache, and all
following blocks. So no reader waits for a paused reader, and no block is requested twice while the cache works.

A reader that only samples the first records leaves its request open (it *parks* the request), and the reader of the
first epoch takes the request over.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator

from ais_tar2tf.base import forking
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import Body, Interrupt, TransferableBody
from ais_tar2tf.stores.cache.block_cache import BLOCK, Content
from ais_tar2tf.stores.cache.tolerant import TolerantBlockCache, TolerantWriter

__all__ = ["Download", "Downloads"]

_SCRATCH = 64 * KIB  # received at once, of bytes that are only written to the cache
_MAX_BLOCKS_BEFORE = 8  # received for other readers before a reader's own block: as many as one range has
_TICK = 0.1  # seconds between two checks whether a waiting reader was closed


class Download:
    """A request for consecutive bytes of an object, whose complete blocks are cached. One reader at a time receives.

    A new Download is locked, so that other readers wait for its answer; `begin` or `cancel` unlocks it.

    Args:
        blocks: The cache to which blocks are written.
        content: The content of the object.
        url: The object's URL, for errors.
        position: The offset in the object of the first byte.
        reader: The reader that receives.
    """

    def __init__(self, blocks: TolerantBlockCache, content: Content, url: str, position: int, reader: object) -> None:
        self._blocks = blocks
        self._url = url
        self._lock = forking.lock()
        self._lock.acquire()
        self._reader: object | None = reader
        self._is_parked = False  # its reader left, and nothing was received since
        self._has_received = False
        self._is_caching = position % BLOCK == 0  # whether all bytes of the current block are written to the cache
        self._body: Body | None = None
        self._writer: TolerantWriter | None = None
        self.content: Content = content
        self.position: int = position  # offset in the object of the next byte
        self.received_to: int = position  # ahead of `position` while the last bytes are written to the cache
        self.stop: int = position  # offset after the last byte
        self.ended: bool = False

    def begin(self, ask: Callable[[], Body], stop: int) -> Body:
        """Send the request for the bytes up to `stop`; return its answer, which may begin or end elsewhere."""
        try:
            self._body = body = ask()
            self.position = self.received_to = body.start
            self.stop = stop
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()
        return body

    def cancel(self) -> None:
        """End this download before its request was sent."""
        self._end()
        self._lock.release()

    def will_cache(self, offset: int) -> bool:
        """Return whether the block of `offset` is one of the next blocks that this request brings and caches."""
        blocks_before = offset // BLOCK - self.position // BLOCK
        return 0 <= blocks_before <= _MAX_BLOCKS_BEFORE and offset < self.stop and self._is_caching

    def is_received_by(self, reader: object) -> bool:
        return self._reader is reader and not self.ended

    def read(self, reader: object, offset: int, buffer: memoryview, interrupt: Interrupt | None) -> int | None:
        """Receive into `buffer` and return the number of bytes.

        None if another reader receives, if the next bytes are not those at `offset`, or if the server ended the
        request while it was parked.
        """
        with self._locked(interrupt):
            if not self.is_received_by(reader) or self.position != offset:
                return None
            return self._receive(buffer)

    def take_over(self, reader: object, offset: int, stop: int, interrupt: Interrupt | None) -> bool:
        """Let `reader`, which wants the bytes from `offset` to `stop`, receive from now on.

        Blocks are received into the cache up to `offset` or, if it is inside a block, to the end of that block.

        Returns:
            False where the request is neither at `offset` nor about to reach it.
        """
        with self._locked(interrupt):
            if self.ended or not (self.position == offset or self.will_cache(offset)):
                return False
            if self._reader is None:  # parked: the bytes after `stop` are requested by other connections
                self.stop = min(self.stop, max(stop, (self.position // BLOCK + 1) * BLOCK))
            if self._reader is not reader:
                self._hand_over(reader, interrupt)
            while self.position != offset and self.position // BLOCK <= offset // BLOCK and not self.ended:
                self._receive_block()
            return True

    def receive_block(self, interrupt: Interrupt | None) -> None:
        """Receive the rest of the current block; it is cached then, unless the cache failed."""
        with self._locked(interrupt):
            self._receive_block()

    def skip_to(self, offset: int, interrupt: Interrupt | None) -> None:
        """Receive and discard the bytes before `offset`: a server without ranges sends the whole object."""
        scratch = memoryview(bytearray(min(_SCRATCH, max(0, offset - self.position))))
        with self._locked(interrupt):
            while self.position < offset:
                if not self._receive(scratch[: offset - self.position], keep=False):
                    raise TransportError(f"it ended before byte {offset:,}", url=self._url)

    def leave(self, reader: object, *, park: bool) -> bool:
        """Let a reader leave: end the request, unless another reader took it over.

        Args:
            reader: The reader that leaves.
            park: Keep the request for the next reader if its body can be handed over. The rest of the current block
                is received first, so that small objects are cached completely.

        Returns:
            Whether the request is parked.
        """
        while self._reader is reader:
            if not self._lock.acquire(timeout=_TICK):
                continue  # another reader is taking the request over
            try:
                if self._reader is not reader:
                    return False
                if park:
                    self._try_to_receive_block()
                if not park or self.ended or not isinstance(self._body, TransferableBody):
                    self._end()
                    return False
                self._hand_over(None, None)
                self._is_parked = True
            finally:
                self._lock.release()
        return self._is_parked

    def end_if_parked(self) -> None:
        """End the request if no reader took it over since it was parked."""
        if self._lock.acquire(blocking=False):
            if self._reader is None:
                self._end()
            self._lock.release()

    @contextlib.contextmanager
    def _locked(self, interrupt: Interrupt | None) -> Generator[None]:
        _wait(self._lock.acquire, interrupt, self._url)
        try:
            yield
        finally:
            self._lock.release()

    def _hand_over(self, reader: object | None, interrupt: Interrupt | None) -> None:
        self._reader = reader
        if isinstance(self._body, TransferableBody):
            self._body.hand_over(interrupt)

    def _receive_block(self) -> None:
        end = min(self.stop, (self.position // BLOCK + 1) * BLOCK)
        scratch = memoryview(bytearray(_SCRATCH))
        while not self.ended and self.position < end:
            self._receive(scratch[: end - self.position])

    def _try_to_receive_block(self) -> None:
        if self._writer is not None or not self._has_received:
            with contextlib.suppress(Exception):  # the next reader requests the block again
                self._receive_block()

    def _receive(self, buffer: memoryview, *, keep: bool = True) -> int | None:
        """Receive once; return None where the server ended the request while it was parked."""
        assert self._body is not None
        was_parked, self._is_parked = self._is_parked, False
        try:
            count = self._body.readinto(buffer[: self.stop - self.position])
            self.received_to = self.position + count
            if keep:
                self._write(buffer[:count])
        except BaseException as error:
            self._end()
            if was_parked and isinstance(error, TransportError):
                return None
            raise
        self._has_received = True
        self.position = self.received_to
        if not count or self.position >= self.stop:
            self._end()
        return count

    def _write(self, data: memoryview) -> None:
        """Write received bytes to the cache, except those of a block whose first bytes are missing."""
        offset = self.position
        while data:
            number, within = divmod(offset, BLOCK)
            block = self.content.block(number)
            piece = data[: block.length - within]
            if not within:
                self._writer = self._blocks.writer(block)
                self._is_caching = self._writer is not None
            if self._writer is not None and not self._writer.add(piece):
                self._writer = None
            if self._writer is not None and within + len(piece) == block.length:
                self._writer.commit()
                self._writer = None
            offset += len(piece)
            data = data[len(piece) :]

    def _end(self) -> None:
        self.ended = True
        self._reader = None
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._body is not None:
            self._body.close()


class Downloads:
    """The requests under way for one cache, and the objects whose first bytes are being requested."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._under_way: weakref.WeakSet[Download] = weakref.WeakSet()
        self._first_requests: dict[str, threading.Event] = {}  # set when the answer has come
        forking.at_fork(self)

    def forked(self) -> None:
        """Forget the parent's requests in a forked child."""
        self._under_way.clear()
        self._first_requests.clear()

    def add(self, download: Download) -> None:
        with self._lock:
            self._under_way.add(download)

    def find(
        self, content: Content, offset: int, make: Callable[[], Download], *, tried: set[Download]
    ) -> tuple[Download, bool]:
        """Return a request that will bring the block of `offset` and is not in `tried`, and False.

        Where there is none, return the new request that `make` makes, and True.
        """
        number = offset // BLOCK
        with self._lock:
            for each in self._under_way:
                if each.content != content or each.ended or each in tried:
                    continue
                if each.position // BLOCK <= number <= each.received_to // BLOCK or each.will_cache(offset):
                    return each, False
            made = make()
            self._under_way.add(made)
            return made, True

    def next_block(self, content: Content, number: int) -> int | None:
        """Return the number of the first block, from `number` on, that a request is about to receive."""
        with self._lock:
            found = [each.position // BLOCK for each in self._under_way if each.content == content and not each.ended]
        return min((each for each in found if each >= number), default=None)

    @contextlib.contextmanager
    def first_request(self, key: str, interrupt: Interrupt | None, url: str) -> Generator[bool]:
        """Wait while another reader requests the first bytes of an object; yield whether there was such a reader.

        The answer to its request states the object's content, so it decides whether both want the same bytes.
        """
        with self._lock:
            other = self._first_requests.get(key)
            if other is None:
                self._first_requests[key] = forking.event()
        if other is not None:
            _wait(other.wait, interrupt, url)
        try:
            yield other is not None
        finally:
            if other is None:
                with self._lock:
                    self._first_requests.pop(key).set()


def _wait(until: Callable[..., bool], interrupt: Interrupt | None, url: str) -> None:
    """Wait until `until(timeout=…)` returns True, or the reader is closed."""
    while not until(timeout=_TICK):
        if interrupt is not None and interrupt.fired:
            raise TransportError("the reader was closed", url=url)
