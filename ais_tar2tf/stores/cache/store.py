"""A store that wraps another store, and caches the blocks that are read from it.

A cached block is used only while the object has the content that the block was read from. When a reader begins at the
first byte of an object, the inner store is asked (HEAD) to confirm the content, unless it did so within the last
`Cache.trust` seconds. A reader that begins at a later byte uses the content of the last confirmation. An object is
cached only if its store states a version, a checksum or another strong validator.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash

from ais_tar2tf.base import forking, periodic
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import KIB
from ais_tar2tf.stores import (
    Body,
    Caching,
    Identity,
    Interrupt,
    MultiRange,
    MultiRangeAnswer,
    Store,
    WrapperStore,
)
from ais_tar2tf.stores.cache.block_cache import BlockCache, BlockId, Content, block_numbers
from ais_tar2tf.stores.cache.body import CachedBody
from ais_tar2tf.stores.cache.download import Download, Downloads
from ais_tar2tf.stores.cache.tolerant import TolerantBlockCache, TolerantWriter

__all__ = ["CachedRanges", "CachedStore"]

_MAX_IDENTITIES = 10_000  # objects whose content is known without asking the block cache
_SCRATCH = 64 * KIB  # received at once, of bytes that are only written to the cache
_MAX_PARKED = 2
_PARKED_SECONDS = 2.0  # an epoch begins right after its sample, or not at all
_FILLED = 0.9  # the part of the cache that chosen blocks may fill: a sweep evicts a sixteenth of the cache


class CachedStore(WrapperStore, Caching):
    """A store with a cache: blocks that are not in `block_cache` are read from `store` and written to the cache."""

    def __init__(
        self,
        store: Store,
        block_cache: BlockCache,
        account: Account,
        *,
        trust: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(store)
        self.blocks: TolerantBlockCache = TolerantBlockCache(block_cache, account)
        self._trust = trust
        self._clock = clock
        self._lock = forking.lock()
        self._identities: OrderedDict[str, Identity] = OrderedDict()  # by name, as the last confirmation stated them
        self._chosen_fraction = 0.0  # the part of all blocks that are fetched whole when a range in them is read
        self._fetched_blocks: set[BlockId] = set()  # being fetched whole
        self._parked: deque[tuple[float, Download]] = deque()  # with the times since when, the oldest first
        forking.at_fork(self)

    def __repr__(self) -> str:
        return f"CachedStore({self._store!r}, {self.blocks.cache!r})"

    def forked(self) -> None:
        """Forget the blocks that the parent's threads are fetching."""
        self._fetched_blocks.clear()

    @property
    def downloads(self) -> Downloads:
        """The requests under way for the same block cache, also those of other stores."""
        return self.blocks.cache.downloads

    def in_whole_blocks(self, total: int) -> CachedStore:
        """Return this store for small reads all over `total` bytes: it fetches and caches the whole blocks of them.

        When the cache is too small for all blocks, the same blocks are chosen in each epoch, so that they do not
        evict each other.
        """
        view = copy.copy(self)
        view._chosen_fraction = _FILLED * self.blocks.cache.bound / max(1, total)
        return view

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        if self._parked:
            self._end_parked(keep=_MAX_PARKED, age=_PARKED_SECONDS)
        key = self._key(name)
        confirmed = self.blocks.cache.confirmed(key)
        body = self._open_known(name, start, stop, interrupt)
        if body is not None:
            return body
        if start:
            return self._open_unknown(name, start, stop, interrupt)
        with self.downloads.first_request(key, interrupt, self.url(name)) as has_waited:
            if has_waited or self.blocks.cache.confirmed(key) != confirmed:  # another reader was faster
                body = self._open_known(name, start, stop, interrupt)
            return body or self._open_unknown(name, start, stop, interrupt)

    def _open_known(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body | None:
        """Open the content that the object is known to have; return None where it is unknown, or has changed."""
        identity = self._known_identity(name, start, interrupt)
        if identity is None:
            return None
        content = Content(self._key(name), identity)
        try:
            self._fetch_blocks(name, content, start, stop, interrupt)
            body = CachedBody(self, name, content, start, stop, interrupt)
            body.begin()
        except ObjectChanged:  # raised by the caller if it has read a part of the earlier content
            return None
        return body

    def _open_unknown(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        """Open an object whose content is unknown; it is cached if the answer states a strong validator."""
        body = self._store.open(name, start, stop, interrupt=interrupt)
        identity = body.info.identity.completed_by(Identity(size=body.info.size))
        if not identity.is_strong or not identity.size:
            return body
        cached = CachedBody(self, name, Content(self._key(name), identity), start, stop, interrupt)
        cached.begin_with(body)
        self._confirm(name, identity)  # last: a reader that knows the content will find the request
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
        """Keep a request that its reader left for the next reader."""
        self._parked.append((time.monotonic(), download))
        self._end_parked(keep=_MAX_PARKED)
        periodic.register(self)

    def on_tick(self) -> bool:
        """End the requests that are parked for too long; return whether others are parked."""
        self._end_parked(keep=_MAX_PARKED, age=_PARKED_SECONDS)
        return bool(self._parked)

    def _end_parked(self, *, keep: int = 0, age: float = 0.0) -> None:
        """End parked requests until at most `keep` are left, none older than `age` seconds (0: of any age)."""
        with contextlib.suppress(IndexError):  # another thread was faster
            while len(self._parked) > keep or (age and time.monotonic() - self._parked[0][0] > age):
                self._parked.popleft()[1].end_if_parked()

    def forget(self, name: str) -> None:
        with self._lock:
            self._identities.pop(name, None)
        self.blocks.cache.forget(self._key(name))

    def _key(self, name: str) -> str:
        """Return the key of an object. It names the store too, because two clusters may have buckets of one name."""
        return f"{self._store!r} {self.full_url(name)}"

    def _known_identity(self, name: str, start: int, interrupt: Interrupt | None) -> Identity | None:
        """Return the content of an object if blocks of it may be cached; otherwise return None."""
        with self._lock:
            stated = self._identities.get(name)
        if start and stated is not None:
            return stated
        confirmed = self.blocks.cache.confirmed(self._key(name))
        if confirmed is None or not confirmed.identity.size:
            return self._identity_of_uncached(name, interrupt) if self._chosen_fraction else None
        if not -1 <= self._clock() - confirmed.time < self._trust:
            now = self._current_identity(name, interrupt)
            if now is None or not confirmed.identity.is_proved_by(now):
                return None
            self._confirm(name, confirmed.identity)
        else:
            self._remember(name, confirmed.identity)
        return confirmed.identity

    def _identity_of_uncached(self, name: str, interrupt: Interrupt | None) -> Identity | None:
        now = self._current_identity(name, interrupt)
        if now is None or not now.is_strong or not now.size:
            return None
        self._confirm(name, now)
        return now

    def _fetch_blocks(
        self, name: str, content: Content, start: int, stop: int | None, interrupt: Interrupt | None
    ) -> None:
        """Cache the chosen blocks of a range whole."""
        size = content.identity.size
        assert size is not None
        numbers = block_numbers(start, size if stop is None else min(stop, size))
        for number in numbers if self._chosen_fraction else ():
            block = content.block(number)
            if not self._is_chosen(block) or self.blocks.has(block):
                continue
            with self._lock:
                if block in self._fetched_blocks:  # for another record; this one is then requested singly
                    continue
                self._fetched_blocks.add(block)
            try:
                self.fetch_block(name, block, interrupt)
            finally:
                with self._lock:
                    self._fetched_blocks.discard(block)

    def _is_chosen(self, block: BlockId) -> bool:
        """Return whether a block is chosen to be cached whole. A hash chooses as many blocks as the cache holds."""
        if not 0 < self._chosen_fraction < 1:
            return self._chosen_fraction > 0
        label = f"{block.number} {block.content.key}".encode("utf-8", "surrogateescape")
        return xxhash.xxh3_64_intdigest(label) < self._chosen_fraction * 2**64

    def fetch_block(self, name: str, block: BlockId, interrupt: Interrupt | None) -> None:
        """Read one block from the inner store into the cache, if there is room for it."""
        writer = self.blocks.writer(block)
        if writer is None:
            return
        identity, stop = block.content.identity, block.start + block.length
        try:
            body = self.open_proved(name, identity, block.start, stop, interrupt)
            with contextlib.closing(body):
                is_whole = body.start == block.start and _copy(body, writer, block.length)
        except BaseException:
            writer.abort()
            raise
        if is_whole:
            writer.commit()
        else:
            writer.abort()

    def _current_identity(self, name: str, interrupt: Interrupt | None) -> Identity | None:
        """Ask the inner store for the content of an object; return None where it has no answer to HEAD."""
        try:
            return self._store.head_once(name, interrupt=interrupt).identity
        except (ShardNotFound, TransportError):
            raise
        except StoreError:
            return None

    def _confirm(self, name: str, identity: Identity) -> None:
        self._remember(name, identity)
        self.blocks.confirm(self._key(name), identity)

    def _remember(self, name: str, identity: Identity) -> None:
        with self._lock:
            self._identities[name] = identity
            self._identities.move_to_end(name)
            if len(self._identities) > _MAX_IDENTITIES:
                self._identities.popitem(last=False)

    def open_proved(
        self, name: str, identity: Identity, start: int, stop: int | None, interrupt: Interrupt | None
    ) -> Body:
        """Request a range from the inner store.

        Raises:
            ObjectChanged: The object is not certain to have this content.
        """
        body = self._store.open(name, start, stop, interrupt=interrupt)
        try:
            identity.prove(body.info.identity, self.url(name))
        except ObjectChanged:
            body.close()
            self.forget(name)
            raise
        return body


def _copy(body: Body, writer: TolerantWriter, left: int) -> bool:
    """Copy `left` bytes; return False where the body ended early, or writing failed."""
    scratch = memoryview(bytearray(_SCRATCH))
    while left > 0:
        count = body.readinto(scratch[:left])
        if not count or not writer.add(scratch[:count]):
            return False
        left -= count
    return True


class CachedRanges(CachedStore, MultiRange):
    """A CachedStore whose inner store answers many ranges at once."""

    across_objects: bool = True

    @property
    def ranges_at_once(self) -> int:
        return self._store.ranges_at_once if isinstance(self._store, MultiRange) else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer | None:
        """Fetch the requested ranges that are neither cached nor about to be cached.

        The pieces of all other ranges are None, so that the caller reads them one by one through the cache.
        """
        assert isinstance(self._store, MultiRange)
        uncached = [number for number, each in enumerate(wanted) if not self._goes_through_cache(*each)]
        if not uncached:
            return None
        answer = self._store.read_many([wanted[number] for number in uncached], interrupt=interrupt)
        if answer is None:
            return None
        pieces = dict(zip(uncached, answer.pieces, strict=True))
        return MultiRangeAnswer([pieces.get(number) for number in range(len(wanted))], answer.identity)

    def _goes_through_cache(self, name: str, start: int, stop: int) -> bool:
        with self._lock:
            identity = self._identities.get(name)
        if identity is None:
            return True
        blocks = map(Content(self._key(name), identity).block, block_numbers(start, stop))
        return any(self._is_chosen(block) or self.blocks.has(block) for block in blocks)
