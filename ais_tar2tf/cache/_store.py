"""A store in front of a store: what is on the shelf comes from there, all else from behind, and is kept on its way.

A shelf's blocks are believed while the object has the content that they are of. Where reading it begins, the store is
asked (HEAD) unless it said so a short while ago (`Cache.trust`); in the middle of it, what it said at the beginning
holds. An object of which the store states neither version, ETag nor checksum is not kept.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from ais_tar2tf.account import Account
from ais_tar2tf.cache._shelf import BLOCK, BlockReader, BlockWriter, Damaged, Place, Shelf
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo, Store, remember, reopener

__all__ = ["CachedStore"]

_REMEMBERED = 10_000  # objects whose content is known without asking the shelf
_SKIPPED = 64 * KIB  # read at once, of what a server without ranges sends again


class CachedStore:
    """`store`, with `shelf` in front of it."""

    def __init__(
        self,
        store: Store,
        shelf: Shelf,
        account: Account,
        *,
        trust: float = 0.0,
        reopen: Callable[[Store], Store] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._account = account
        self._trust = trust
        self._clock = clock
        self._lock = threading.Lock()
        self._said: OrderedDict[str, Identity] = OrderedDict()  # by the store, where reading began
        behind = reopener(store)
        if behind is not None:
            remember(self, behind if reopen is None else functools.partial(_reopened, behind, reopen))

    def __repr__(self) -> str:
        return f"CachedStore({self._store!r}, {self._shelf!r})"

    def url(self, name: str) -> str:
        return self._store.url(name)

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        known = self._content(name, start)
        if known is not None:
            try:
                return _CachedBody(self, name, known, start, stop, interrupt).begun()
            except ObjectChanged:
                pass  # it is another one now: whoever has read the beginning will see that
        body = self._store.open(name, start, stop, interrupt=interrupt)
        identity = body.info.identity.completed_by(Identity(size=body.info.size))
        if not _is_told(identity) or not identity.size:
            return body
        self._vouch(name, identity)
        return _CachedBody(self, name, identity, body.start, body.stop, interrupt, body)

    def head(self, name: str) -> ObjectInfo:
        return self._store.head(name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def put(self, name: str, data: bytes | Path) -> None:
        self._store.put(name, data)
        self.forget(name)

    def move(self, name: str, to: str) -> bool:
        moved = self._store.move(name, to)
        self.forget(name)
        self.forget(to)
        return moved

    def delete(self, name: str) -> None:
        self._store.delete(name)
        self.forget(name)

    def create(self) -> None:
        self._store.create()

    def close(self) -> None:
        self._store.close()

    def forget(self, name: str) -> None:
        """What is kept of the object is not to be used again."""
        with self._lock:
            self._said.pop(name, None)
        self._shelf.forget(self._key(name))

    def _key(self, name: str) -> str:
        """Two clusters may have buckets of one name."""
        return f"{self._store!r} {self._store.url(name)}"

    def _content(self, name: str, start: int) -> Identity | None:
        """The content of the object, if it is one that the shelf may have."""
        with self._lock:
            said = self._said.get(name)
        if start and said is not None:
            return said
        known = self._shelf.known(self._key(name))
        if known is None or not known.identity.size:
            return None
        if not -1 <= self._clock() - known.vouched < self._trust:
            now = self._asked(name)
            if now is None or not _is_same(known.identity, now):
                return None
            self._vouch(name, known.identity)
        else:
            self._remember(name, known.identity)
        return known.identity

    def _asked(self, name: str) -> Identity | None:
        """What the store says of the object now; None where it does not answer such questions."""
        try:
            return self._store.head(name).identity
        except (ShardNotFound, TransportError):
            raise
        except StoreError:
            return None

    def _vouch(self, name: str, identity: Identity) -> None:
        self._remember(name, identity)
        try:
            self._shelf.vouch(self._key(name), identity)
        except OSError:
            self._fault()

    def _remember(self, name: str, identity: Identity) -> None:
        with self._lock:
            self._said[name] = identity
            self._said.move_to_end(name)
            if len(self._said) > _REMEMBERED:
                self._said.popitem(last=False)

    def _fault(self) -> None:
        self._account.add(cache_faults=1)

    # What bodies do with the shelf.

    def place(self, name: str, identity: Identity, number: int) -> Place:
        return Place(self._key(name), identity, number)

    def has(self, place: Place) -> bool:
        try:
            return self._shelf.has(place)
        except OSError:
            return False

    def reader(self, place: Place) -> BlockReader | None:
        try:
            return self._shelf.reader(place)
        except FileNotFoundError:
            return None
        except (OSError, Damaged):
            self.discard(place)
            return None

    def discard(self, place: Place) -> None:
        self._fault()
        self._shelf.discard(place)

    def writer(self, place: Place) -> BlockWriter | None:
        try:
            return None if self._shelf.has(place) else self._shelf.writer(place)
        except OSError:
            self._fault()
            return None

    def write(self, act: Callable[[], None], writer: BlockWriter) -> bool:
        """Whether `act` of the writer could be done; if not, it is given up."""
        try:
            act()
        except OSError:
            self._fault()
            self.give_up(writer)
            return False
        return True

    def give_up(self, writer: BlockWriter) -> None:
        try:
            writer.abort()
        except OSError:
            self._fault()

    def from_shelf(self, count: int) -> None:
        self._account.add(cached=count)

    def from_store(
        self, name: str, identity: Identity, start: int, stop: int | None, interrupt: Interrupt | None
    ) -> Body:
        """Bytes of that content, or ObjectChanged."""
        body = self._store.open(name, start, stop, interrupt=interrupt)
        try:
            identity.check(body.info.identity, self.url(name))
        except ObjectChanged:
            body.close()
            self.forget(name)
            raise
        return body


def _reopened(behind: Callable[[], Store], reopen: Callable[[Store], Store]) -> Store:
    return reopen(behind())


def _is_told(identity: Identity) -> bool:
    return bool(identity.version or identity.etag or identity.checksum)


def _is_same(kept: Identity, now: Identity) -> bool:
    told = any((kept.version and now.version, kept.etag and now.etag, kept.checksum and now.checksum))
    return told and kept.differs_from(now) is None


class _CachedBody:
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
        self.info = ObjectInfo(name, self._size, identity)
        self.start = start
        self._stop = self._size if stop is None else min(stop, self._size)
        self.stop: int | None = self._stop

    def begun(self) -> _CachedBody:
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
        if self._reader is None:
            self._reader = self._store.reader(place)
        if self._reader is None:
            return 0
        try:
            count = self._reader.read(within, buffer[: place.length - within])
        except (OSError, Damaged):
            self._close_reader()
            self._store.discard(place)
            return 0
        self._store.from_shelf(count)
        if within + count == place.length:
            self._close_reader()
        return count

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
