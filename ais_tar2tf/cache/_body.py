"""The bytes of one content of an object: block by block from a shelf or, in runs, from the store behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ais_tar2tf.cache._shelf import BLOCK, BlockReader, BlockWriter, Damaged, Place
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo

if TYPE_CHECKING:
    from ais_tar2tf.cache._store import CachedStore

__all__ = ["CachedBody"]

_SKIPPED = 64 * KIB  # read at once, of what a server without ranges sends again


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
        behind: Body | None = None,
    ) -> None:
        assert identity.size is not None
        self._store = store
        self._identity = identity
        self._size = identity.size
        self._interrupt = interrupt
        self._at = start
        self._reader: BlockReader | None = None
        self._behind = behind
        self._behind_stop = self._size if behind is None or behind.stop is None else behind.stop
        self._writer: BlockWriter | None = None
        self._repaired = -1  # the block that was found damaged last
        self.info = ObjectInfo(name, self._size, identity)
        self.start = start
        self._stop = self._size if stop is None else min(stop, self._size)
        self.stop: int | None = self._stop

    def begun(self) -> CachedBody:
        """Itself; if its first bytes come from the store, they are asked for.

        A server without ranges says so by what it answers: whoever asked has to see it.
        """
        if self._at < self._stop and not self._store.has(self._place(self._at // BLOCK)):
            at, behind = self._at, self._open_behind()
            if behind.stop is not None and behind.stop > self._behind_stop:
                self._behind_stop = self._stop = self.stop = behind.stop
            if behind.start < at:
                self._at = self.start = behind.start
        return self

    def readinto(self, buffer: memoryview) -> int:
        buffer = buffer[: max(0, self._stop - self._at)]
        if not buffer:
            return 0
        count = 0 if self._behind is not None else self._from_shelf(buffer)
        if not count:
            count = self._from_behind(buffer)
        self._at += count
        return count

    def close(self) -> None:
        self._close_reader()
        self._close_behind()

    def _place(self, number: int) -> Place:
        return self._store.place(self.info.name, self._identity, number)

    def _from_shelf(self, buffer: memoryview) -> int:
        """What the shelf has from here on; 0 where it is not, or is damaged."""
        number, within = divmod(self._at, BLOCK)
        place = self._place(number)
        try:
            if self._reader is None:
                self._reader = self._store.reader(place)
            if self._reader is None:
                return 0
            count = self._reader.read(within, buffer[: place.length - within])
        except (OSError, Damaged):
            self._close_reader()
            self._store.discard(place)
            return self._from_repaired(place, buffer)
        self._store.from_shelf(count)
        if within + count == place.length:
            self._close_reader()
        return count

    def _from_repaired(self, place: Place, buffer: memoryview) -> int:
        """The same from a block that was found damaged, once it is whole again; 0 where it cannot be."""
        if self._repaired == place.number:
            return 0
        self._repaired = place.number
        self._store.fetch_block(self.info.name, place, self._interrupt)
        return self._from_shelf(buffer)

    def _from_behind(self, buffer: memoryview) -> int:
        behind = self._behind
        if behind is None:
            behind = self._open_behind()
            self._skip(behind)
        count = behind.readinto(buffer[: self._behind_stop - self._at])
        if not count:
            return 0
        self._keep(buffer[:count])
        if self._at + count >= self._behind_stop:
            self._close_behind()
        return count

    def _open_behind(self) -> Body:
        """From the store, up to the next block that the shelf has."""
        number = self._at // BLOCK + 1
        last = -(-self._stop // BLOCK)
        while number < last and not self._store.has(self._place(number)):
            number += 1
        self._behind_stop = min(number * BLOCK, self._stop)
        asked = None if self._behind_stop == self._size else self._behind_stop
        self._behind = self._store.from_store(self.info.name, self._identity, self._at, asked, self._interrupt)
        return self._behind

    def _skip(self, behind: Body) -> None:
        """A server without ranges sends everything again."""
        left = self._at - behind.start
        scratch = memoryview(bytearray(min(_SKIPPED, max(0, left))))
        while left > 0:
            count = behind.readinto(scratch[:left])
            if not count:
                raise TransportError(f"it ended before byte {self._at:,}", url=self._store.url(self.info.name))
            left -= count

    def _keep(self, data: memoryview) -> None:
        at = self._at
        while data:
            number, within = divmod(at, BLOCK)
            place = self._place(number)
            piece = data[: place.length - within]
            if not within:
                self._writer = self._store.writer(place)
            if self._writer is not None:
                self._give(self._writer, piece, is_last=within + len(piece) == place.length)
            at += len(piece)
            data = data[len(piece) :]

    def _give(self, writer: BlockWriter, piece: memoryview, *, is_last: bool) -> None:
        given = self._store.write(lambda: writer.add(piece), writer)
        if not given or (is_last and (self._store.write(writer.commit, writer) or True)):
            self._writer = None

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _close_behind(self) -> None:
        if self._writer is not None:
            self._store.give_up(self._writer)
            self._writer = None
        if self._behind is not None:
            self._behind.close()
            self._behind = None
