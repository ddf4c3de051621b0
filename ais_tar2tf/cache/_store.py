"""A store in front of a store: what is on the shelf comes from there, all else from behind, and is kept on its way.

A shelf's blocks are believed while the object has the content that they are of. Where reading it begins, the store is
asked (HEAD) unless it said so a short while ago (`Cache.trust`); in the middle of it, what it said at the beginning
holds. An object of which the store states neither a version, a checksum nor another strong validator is not kept.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash

from ais_tar2tf import forking, lookout
from ais_tar2tf.account import Account
from ais_tar2tf.cache._body import CachedBody
from ais_tar2tf.cache._download import Download, Downloads
from ais_tar2tf.cache._shelf import BLOCK, BlockReader, BlockWriter, Place, Shelf
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import (
    Body,
    Identity,
    Interrupt,
    Pieces,
    Ranges,
    Store,
    WrapperStore,
    asked,
    remember,
    reopener,
)

__all__ = ["CachedRanges", "CachedStore"]

_REMEMBERED = 10_000  # objects whose content is known without asking the shelf
_SCRATCH = 64 * KIB  # read at once, of what is not for whoever asked
_MOST_PARKED = 2
_PARKED = 2.0  # seconds: an epoch begins right after its sample, or not at all
_FILLED = 0.9  # of the bound, with blocks for who reads parts of them: a sweep frees a sixteenth at once


class CachedStore(WrapperStore):
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
        super().__init__(store)
        self._shelf = shelf
        self._account = account
        self._trust = trust
        self._clock = clock
        self._lock = forking.lock()
        self._said: OrderedDict[str, Identity] = OrderedDict()  # by the store, where reading began
        self._share = 0.0  # of the blocks that are fetched whole for a part of them
        self._on_the_way: set[Place] = set()  # of these
        self._parked: deque[tuple[float, Download]] = deque()  # requests that readers left, since when
        forking.at_fork(self)
        behind = reopener(store)
        if behind is not None:
            remember(self, behind if reopen is None else functools.partial(_reopened, behind, reopen))

    def __repr__(self) -> str:
        return f"CachedStore({self._store!r}, {self._shelf!r})"

    def forked(self) -> None:
        """What is on the way is the parent's."""
        self._on_the_way.clear()

    @property
    def downloads(self) -> Downloads:
        return self._shelf.downloads

    def in_whole_blocks(self, total: int) -> CachedStore:
        """The same shelf, for who reads small ranges all over `total` bytes: blocks of them come whole, and are kept.

        Where there is no room for all, it is always the same ones, so that they don't drive each other out.
        """
        view = copy.copy(self)
        view._share = _FILLED * self._shelf.bound / max(1, total)
        return view

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        if self._parked:
            self._end_parked(most=_MOST_PARKED, age=_PARKED)
        key = self._key(name)
        known = self._shelf.known(key)
        body = self._open_known(name, start, stop, interrupt)
        if body is not None:
            return body
        if start:
            return self._open_unknown(name, start, stop, interrupt)
        with self.downloads.asking(key, interrupt, self.url(name)) as answered:
            if answered or self._shelf.known(key) != known:  # another reader was faster
                body = self._open_known(name, start, stop, interrupt)
            return body or self._open_unknown(name, start, stop, interrupt)

    def _open_known(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body | None:
        """A body of the content that the object is known to have; None where that is not known, or has changed."""
        known = self._content(name, start, interrupt)
        if known is None:
            return None
        try:
            self._fill(name, known, start, stop, interrupt)
            return CachedBody(self, name, known, start, stop, interrupt).begun()
        except ObjectChanged:  # whoever has read the beginning of the other content will see that
            return None

    def _open_unknown(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        body = self._store.open(name, start, stop, interrupt=interrupt)
        identity = body.info.identity.completed_by(Identity(size=body.info.size))
        if not identity.is_strong or not identity.size:
            return body
        # In this order: another reader for which the content is known finds this request.
        cached = CachedBody(self, name, identity, start, stop, interrupt).begun_by(body)
        self._vouch(name, identity)
        return cached

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

    def close(self) -> None:
        self._end_parked()
        self._store.close()

    def park(self, download: Download) -> None:
        """Keep a request that was left for the next reader."""
        self._parked.append((time.monotonic(), download))
        self._end_parked(most=_MOST_PARKED)
        lookout.watch(self)

    def look(self) -> bool:
        """End requests that were parked and not taken over for a while; return whether others are parked."""
        self._end_parked(most=_MOST_PARKED, age=_PARKED)
        return bool(self._parked)

    def _end_parked(self, *, most: int = 0, age: float = 0.0) -> None:
        """End what was parked and not taken over: so that `most` are left, or none older than `age` seconds."""
        with contextlib.suppress(IndexError):  # another thread was faster
            while len(self._parked) > most or (age and time.monotonic() - self._parked[0][0] > age):
                self._parked.popleft()[1].end_if_parked()

    def forget(self, name: str) -> None:
        """What is kept of the object is not to be used again."""
        with self._lock:
            self._said.pop(name, None)
        self._shelf.forget(self._key(name))

    def _key(self, name: str) -> str:
        """Two clusters may have buckets of one name."""
        return f"{self._store!r} {self.whole_url(name)}"

    def _content(self, name: str, start: int, interrupt: Interrupt | None) -> Identity | None:
        """The content of the object, if it is one that the shelf may have."""
        with self._lock:
            said = self._said.get(name)
        if start and said is not None:
            return said
        known = self._shelf.known(self._key(name))
        if known is None or not known.identity.size:
            return self._content_for_blocks(name, interrupt) if self._share else None
        if not -1 <= self._clock() - known.vouched < self._trust:
            now = self._asked(name, interrupt)
            if now is None or not known.identity.is_proved_by(now):
                return None
            self._vouch(name, known.identity)
        else:
            self._remember(name, known.identity)
        return known.identity

    def _content_for_blocks(self, name: str, interrupt: Interrupt | None) -> Identity | None:
        """Of an object of which nothing is here yet."""
        now = self._asked(name, interrupt)
        if now is None or not now.is_strong or not now.size:
            return None
        self._vouch(name, now)
        return now

    def _fill(self, name: str, identity: Identity, start: int, stop: int | None, interrupt: Interrupt | None) -> None:
        """Keep the blocks of which this is a part, as far as they are to be kept."""
        assert identity.size is not None
        end = identity.size if stop is None else min(stop, identity.size)
        for number in range(start // BLOCK, -(-end // BLOCK)) if self._share else ():
            place = self.place(name, identity, number)
            if not self._is_chosen(place) or self.has(place):
                continue
            with self._lock:
                if place in self._on_the_way:  # for another record: this one comes by itself
                    continue
                self._on_the_way.add(place)
            try:
                self.fetch_block(name, place, interrupt)
            finally:
                with self._lock:
                    self._on_the_way.discard(place)

    def _is_chosen(self, place: Place) -> bool:
        if not 0 < self._share < 1:
            return self._share > 0
        what = f"{place.number} {place.key}".encode("utf-8", "surrogateescape")
        return xxhash.xxh3_64_intdigest(what) < self._share * 2**64

    def fetch_block(self, name: str, place: Place, interrupt: Interrupt | None) -> None:
        """Keep one block, whole, if there is room for it."""
        writer = self.writer(place)
        if writer is None:
            return
        stop = place.start + place.length
        try:
            body = self.from_store(name, place.identity, place.start, stop, interrupt)
            with contextlib.closing(body):
                is_whole = body.start == place.start and self._written(body, writer, place.length)
        except BaseException:
            self.give_up(writer)
            raise
        if is_whole:
            self.write(writer.commit, writer)
        else:
            self.give_up(writer)

    def _written(self, body: Body, writer: BlockWriter, left: int) -> bool:
        """Whether so many bytes came, and could be written."""
        scratch = memoryview(bytearray(_SCRATCH))
        while left > 0:
            count = body.readinto(scratch[:left])
            if not count:
                return False
            piece = scratch[:count]
            if not self.write(functools.partial(writer.add, piece), writer):
                return False
            left -= count
        return True

    def _asked(self, name: str, interrupt: Interrupt | None) -> Identity | None:
        """What the store says of the object now; None where it does not answer such questions."""
        try:
            return asked(self._store, name, interrupt).identity
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
        """What reads a block; None where it is not kept. Raises OSError or Damaged where it is of no use."""
        try:
            return self._shelf.reader(place)
        except FileNotFoundError:
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
            identity.prove(body.info.identity, self.url(name))
        except ObjectChanged:
            body.close()
            self.forget(name)
            raise
        return body


def _reopened(behind: Callable[[], Store], reopen: Callable[[Store], Store]) -> Store:
    return reopen(behind())


class CachedRanges(CachedStore):
    """In front of a store that gives many ranges at once."""

    across_objects: bool = True

    @property
    def ranges_at_once(self) -> int:
        return self._store.ranges_at_once if isinstance(self._store, Ranges) else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> Pieces | None:
        """Those of which the shelf has nothing, and is to have nothing; the others are to be read by themselves."""
        assert isinstance(self._store, Ranges)
        passed = [number for number, each in enumerate(wanted) if not self._concerns(*each)]
        if not passed:
            return None
        answer = self._store.read_many([wanted[number] for number in passed], interrupt=interrupt)
        if answer is None:
            return None
        found = dict(zip(passed, answer.pieces, strict=True))
        return Pieces([found.get(number) for number in range(len(wanted))], answer.identity)

    def _concerns(self, name: str, start: int, stop: int) -> bool:
        with self._lock:
            said = self._said.get(name)
        if said is None:
            return True
        places = (self.place(name, said, number) for number in range(start // BLOCK, -(-stop // BLOCK)))
        return any(self._is_chosen(place) or self.has(place) for place in places)
