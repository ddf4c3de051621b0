"""The body of a cached object: each of its bytes comes from a cached block, or from a request to the inner store.

The requests are shared with other bodies of this process, see `download.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ais_tar2tf.stores import Body, Interrupt, ObjectInfo
from ais_tar2tf.stores.cache.block_cache import BLOCK, BlockReader, Content, DamagedBlock
from ais_tar2tf.stores.cache.download import Download

if TYPE_CHECKING:
    from ais_tar2tf.stores.cache.store import CachedStore

__all__ = ["CachedBody"]


class CachedBody(Body):
    """The bytes of one content of an object, which means of one version. Bytes of two contents are never mixed.

    One request brings as many consecutive uncached blocks as possible. Before reading, call `begin` or `begin_with`.
    """

    def __init__(
        self,
        store: CachedStore,
        name: str,
        content: Content,
        start: int,
        stop: int | None,
        interrupt: Interrupt | None,
    ) -> None:
        size = content.identity.size
        assert size is not None
        self._store = store
        self._content = content
        self._size = size
        self._interrupt = interrupt
        self._position = start
        self._block_reader: BlockReader | None = None
        self._is_block_damaged = False  # a part of the current block was read before its damage was found
        self._last_repaired = -1  # number of the last block that was requested because it was damaged
        self._last_appeared = -1  # number of the last block that another reader cached just before its request
        self._download: Download | None = None
        self.info = ObjectInfo(name, size, content.identity)
        self.start = start
        self._stop = size if stop is None else min(stop, size)
        self.stop: int | None = self._stop

    def begin(self) -> None:
        """Request the first bytes now, unless they are cached.

        A server without ranges answers with the whole object: `start` and `stop` then state the bytes of this body.
        """
        if self._position < self._stop and not self._store.blocks.has(self._content.block(self._position // BLOCK)):
            answer = self._find_download(self._position)
            if answer is not None:
                self._adapt_to(answer)

    def begin_with(self, answer: Body) -> None:
        """Take the first bytes from `answer`, whose headers state the content of the object."""
        self._download = self._new_download(answer.start)
        self._store.downloads.add(self._download)
        self._download.begin(lambda: answer, self._stop)
        self._adapt_to(answer)

    def readinto(self, buffer: memoryview) -> int:
        buffer = buffer[: max(0, self._stop - self._position)]
        while buffer:
            count = self._read_download(buffer)
            if count is None:
                count = self._read_cache(buffer)
            if count is not None:
                self._position += count
                return count
            self._continue_from_store()
        return 0

    def close(self) -> None:
        self._close_reader()
        self._leave_download()

    def _adapt_to(self, answer: Body) -> None:
        """Extend this body to the whole answer if the answer begins earlier or ends later than requested."""
        assert self._download is not None
        if answer.stop is not None and answer.stop > self._download.stop:
            self._download.stop = self._stop = self.stop = answer.stop
        if answer.start < self._position:
            self._position = self.start = answer.start

    def _read_cache(self, buffer: memoryview) -> int | None:
        """Read from the cache; return None if the current block is not cached, or is damaged."""
        number, block_offset = divmod(self._position, BLOCK)
        block = self._content.block(number)
        try:
            if self._block_reader is None:
                self._block_reader = self._store.blocks.reader(block)
            if self._block_reader is None:
                return None
            count = self._block_reader.read(block_offset, buffer[: block.length - block_offset])
        except (OSError, DamagedBlock):
            self._close_reader()
            self._store.blocks.discard(block)
            if self._last_repaired != number and self._stop < block.start + block.length:
                self._last_repaired = number  # a request for the bytes of this body would not bring the whole block
                self._store.fetch_block(self.info.name, block, self._interrupt)
                return self._read_cache(buffer)
            self._is_block_damaged = block_offset > 0 and self._last_repaired != number
            return None
        self._store.blocks.count_cached(count)
        if block_offset + count == block.length:
            self._close_reader()
        return count

    def _read_download(self, buffer: memoryview) -> int | None:
        """Read from the current request; return None if there is no request, or if it brings other bytes next."""
        if self._download is None:
            return None
        count = self._download.read(self, self._position, buffer, self._interrupt)
        if not self._download.is_received_by(self):
            self._download = None
        return count

    def _continue_from_store(self) -> None:
        """Find or send a request, and receive from it until the next bytes can be read from it or from the cache."""
        offset = self._position
        if self._is_block_damaged:  # the whole block is requested, so that it is cached again
            self._last_repaired = offset // BLOCK
            offset = self._last_repaired * BLOCK
        answer = self._find_download(offset)
        if answer is not None and self._download is not None:
            self._download.skip_to(offset, self._interrupt)
            if self._is_block_damaged:
                self._download.receive_block(self._interrupt)
        self._is_block_damaged = False

    def _find_download(self, offset: int) -> Body | None:
        """Take over a request that will bring the byte at `offset`, or send a new request.

        Returns:
            The answer to a new request. None if a request was taken over, or if the byte is cached by now.
        """
        tried: set[Download] = set()
        while True:
            download, is_new = self._store.downloads.find(
                self._content, offset, lambda: self._new_download(offset), tried=tried
            )
            if is_new and self._has_appeared(offset // BLOCK):
                download.cancel()
                return None
            if is_new:
                self._leave_download()
                self._download = download
                return self._send(download, offset)
            if download.take_over(self, self._position, self._stop, self._interrupt):
                if self._download is not download:
                    self._leave_download()
                self._download = download
                return None
            if self._has_appeared(offset // BLOCK):
                return None
            tried.add(download)

    def _has_appeared(self, number: int) -> bool:
        """Return whether a block is cached by now; True only once for a block, since the block may be unreadable."""
        if self._last_appeared == number or not self._store.blocks.has(self._content.block(number)):
            return False
        self._last_appeared = number
        return True

    def _new_download(self, offset: int) -> Download:
        return Download(self._store.blocks, self._content, self._store.url(self.info.name), offset, self)

    def _send(self, download: Download, offset: int) -> Body:
        """Request the bytes up to the next block that is cached or that another body receives; return the answer."""
        number = offset // BLOCK + 1
        last = -(-self._stop // BLOCK)
        following = self._store.downloads.next_block(self._content, number)
        last = last if following is None else min(last, following)
        while number < last and not self._store.blocks.has(self._content.block(number)):
            number += 1
        stop = min(number * BLOCK, self._stop)
        requested_stop = None if stop == self._size else stop
        name, identity = self.info.name, self._content.identity
        return download.begin(
            lambda: self._store.open_proved(name, identity, offset, requested_stop, self._interrupt), stop
        )

    def _leave_download(self) -> None:
        if self._download is not None:
            download, self._download = self._download, None
            park = self._interrupt is not None and self._interrupt.may_park and not self._interrupt.fired
            if download.leave(self, park=park):
                self._store.park(download)

    def _close_reader(self) -> None:
        if self._block_reader is not None:
            self._block_reader.close()
            self._block_reader = None
