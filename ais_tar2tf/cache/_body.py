"""The bytes of one content of an object: block by block from a shelf or, in runs, from the store behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ais_tar2tf.cache._download import Download
from ais_tar2tf.cache._shelf import BLOCK, BlockReader, Damaged, Place
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo

if TYPE_CHECKING:
    from ais_tar2tf.cache._store import CachedStore

__all__ = ["CachedBody"]


class CachedBody:
    """Bytes of one content of an object, block by block from the shelf or, in runs, from the store."""

    def __init__(
        self,
        store: CachedStore,
        name: str,
        identity: Identity,
        start: int,
        stop: int | None,
        interrupt: Interrupt | None,
    ) -> None:
        assert identity.size is not None
        self._store = store
        self._identity = identity
        self._size = identity.size
        self._interrupt = interrupt
        self._at = start
        self._reader: BlockReader | None = None
        self._damaged = False  # the block in which the body is now
        self._mended = -1  # the last block that was damaged
        self._came = -1  # the last block that was found on the shelf when it was to be asked for
        self._download: Download | None = None
        self.info = ObjectInfo(name, self._size, identity)
        self.start = start
        self._stop = self._size if stop is None else min(stop, self._size)
        self.stop: int | None = self._stop

    def begun(self) -> CachedBody:
        """Request the first bytes now, unless they are on the shelf, and return self.

        A server without ranges says so by what it answers: whoever asked has to see it.
        """
        if self._at < self._stop and not self._store.has(self._place(self._at // BLOCK)):
            answer = self._find_download(self._at)
            if answer is not None:
                self._adapt_to(answer)
        return self

    def begun_by(self, answer: Body) -> CachedBody:
        """Take the first bytes from the answer that told which content the object has, and return self."""
        self._download = self._new_download(answer.start)
        self._store.downloads.add(self._download)
        self._download.begin(lambda: answer, self._stop)
        self._adapt_to(answer)
        return self

    def readinto(self, buffer: memoryview) -> int:
        buffer = buffer[: max(0, self._stop - self._at)]
        while buffer:
            count = self._received(buffer)
            if count is None:
                count = self._from_shelf(buffer)
            if count is not None:
                self._at += count
                return count
            self._go_on_from_store()
        return 0

    def close(self) -> None:
        self._close_reader()
        self._leave_download()

    def _adapt_to(self, answer: Body) -> None:
        """Give out the bytes that the store answered with, where these are more than it was asked for."""
        assert self._download is not None
        if answer.stop is not None and answer.stop > self._download.stop:
            self._download.stop = self._stop = self.stop = answer.stop
        if answer.start < self._at:
            self._at = self.start = answer.start

    def _place(self, number: int) -> Place:
        return self._store.place(self.info.name, self._identity, number)

    def _from_shelf(self, buffer: memoryview) -> int | None:
        """What the shelf has from here on; None where it has nothing, or something damaged."""
        number, within = divmod(self._at, BLOCK)
        place = self._place(number)
        try:
            if self._reader is None:
                self._reader = self._store.reader(place)
            if self._reader is None:
                return None
            count = self._reader.read(within, buffer[: place.length - within])
        except (OSError, Damaged):
            self._close_reader()
            self._store.discard(place)
            if self._mended != number and self._stop < place.start + place.length:
                self._mended = number  # a request for this reader's bytes would not bring the whole block
                self._store.fetch_block(self.info.name, place, self._interrupt)
                return self._from_shelf(buffer)
            self._damaged = within > 0 and self._mended != number
            return None
        self._store.from_shelf(count)
        if within + count == place.length:
            self._close_reader()
        return count

    # What is not on the shelf.

    def _received(self, buffer: memoryview) -> int | None:
        """Bytes of the request that is under way; None where they are not this reader's next ones."""
        if self._download is None:
            return None
        count = self._download.read(self, self._at, buffer, self._interrupt)
        if not self._download.is_of(self):
            self._download = None
        return count

    def _go_on_from_store(self) -> None:
        """Find or send the request that brings the next bytes, to this reader or to the shelf."""
        at = self._at
        if self._damaged:  # the whole block again, so that it is kept again
            self._mended = at // BLOCK
            at = self._mended * BLOCK
        answer = self._find_download(at)
        if answer is not None and self._download is not None:
            self._download.skip_to(at, self._interrupt)
            if self._damaged:
                self._download.receive_block(self._interrupt)
        self._damaged = False

    def _find_download(self, at: int) -> Body | None:
        """Take over a request that leads to `at`, or send one; return the answer to a new one."""
        tried: set[Download] = set()
        while True:
            download, is_new = self._store.downloads.find(
                self._content, at, lambda: self._new_download(at), tried=tried
            )
            if is_new and self._came_meanwhile(at // BLOCK):
                download.never_mind()
                return None
            if is_new:
                self._leave_download()
                self._download = download
                return self._begin(download, at)
            if download.take_over(self, self._at, self._stop, self._interrupt):
                if self._download is not download:
                    self._leave_download()
                self._download = download
                return None
            if self._came_meanwhile(at // BLOCK):
                return None
            tried.add(download)

    def _came_meanwhile(self, number: int) -> bool:
        """Whether the block is on the shelf now: said once of each block, for it may be there and not be readable."""
        if self._came == number or not self._store.has(self._place(number)):
            return False
        self._came = number
        return True

    @property
    def _content(self) -> tuple[str, Identity]:
        return self._place(0).key, self._identity

    def _new_download(self, at: int) -> Download:
        return Download(self._store, self.info.name, self._identity, at, self)

    def _begin(self, download: Download, at: int) -> Body:
        """From the store, up to the next block that the shelf has, or that another reader receives."""
        number = at // BLOCK + 1
        last = -(-self._stop // BLOCK)
        following = self._store.downloads.next_block(self._content, number)
        last = last if following is None else min(last, following)
        while number < last and not self._store.has(self._place(number)):
            number += 1
        stop = min(number * BLOCK, self._stop)
        asked = None if stop == self._size else stop
        return download.begin(
            lambda: self._store.from_store(self.info.name, self._identity, at, asked, self._interrupt), stop
        )

    def _leave_download(self) -> None:
        if self._download is not None:
            download, self._download = self._download, None
            parting = self._interrupt is not None and self._interrupt.parting and not self._interrupt.fired
            if download.leave(self, park=parting):
                self._store.park(download)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
