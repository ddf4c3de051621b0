"""A store that wraps another store, the *inner store*, and caches the blocks that are read from it.

A cached block is used only while the object has the content from which the block was read. When a reader begins at
the first byte of an object, a HEAD request to the inner store *confirms* the content: it shows that the object still
has this content. The request is left out if the content was confirmed within the last `Cache.trust` seconds. A reader
that begins at a later byte relies on the last confirmation. An object is cached only if its store states a version, a
checksum or another strong validator.

A reader that only samples the first records leaves its request open: the request is *parked*, and the next reader of
the object continues it.

This module must not mix two contents of an object, and must not parse the bytes.
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

_MAX_IDENTITIES = 10_000  # the most objects whose last confirmed identity a store keeps
_SCRATCH = 64 * KIB  # size of the buffer for bytes that are only written to the cache
_MAX_PARKED = 2  # the most requests that are parked at the same time
# After this time, a parked request is ended. The request is kept for the epoch that may follow the sample: this epoch
# begins at once or not at all.
_PARKED_SECONDS = 2.0
_FILLED = 0.9  # the fraction of the cache that whole blocks may fill: a full cache evicts 1/16 at once


class CachedStore(WrapperStore, Caching):
    """A store with a cache. Blocks that are not in `block_cache` are read from `store`, and written to the cache."""

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
        self._identities: OrderedDict[str, Identity] = OrderedDict()  # the identities last confirmed, by object name
        self._chosen_fraction = 0.0  # the fraction of all blocks that is *chosen*, see `in_whole_blocks`
        self._fetched_blocks: set[BlockId] = set()  # the blocks that are being fetched whole
        self._parked: deque[tuple[float, Download]] = deque()  # (time of parking, request), the oldest first
        forking.at_fork(self)

    def __repr__(self) -> str:
        return f"CachedStore({self._store!r}, {self.blocks.cache!r})"

    def forked(self) -> None:
        """Forget the blocks that threads of the parent are fetching, because a forked child has no such threads."""
        self._fetched_blocks.clear()

    @property
    def downloads(self) -> Downloads:
        """All current requests of this process that fill the block cache, including requests of other stores."""
        return self.blocks.cache.downloads

    def in_whole_blocks(self, total: int) -> CachedStore:
        """Return a view of this store for small reads that are spread over `total` bytes.

        When a range is read, the view fetches and caches the whole block around it, if the block is *chosen*. All
        blocks are chosen if they fit into the cache. Otherwise only as many blocks are chosen as fit, and the same
        blocks in each epoch, so that chosen blocks do not evict each other.
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
            # If another reader was faster, its answer has confirmed the content.
            if has_waited or self.blocks.cache.confirmed(key) != confirmed:
                body = self._open_known(name, start, stop, interrupt)
            return body or self._open_unknown(name, start, stop, interrupt)

    def _open_known(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body | None:
        """Open an object through the cache; return None if its content is unknown or has changed."""
        identity = self._known_identity(name, start, interrupt)
        if identity is None:
            return None
        content = Content(self._key(name), identity)
        try:
            self._fetch_blocks(name, content, start, stop, interrupt)
            body = CachedBody(self, name, content, start, stop, interrupt)
            body.begin()
        except ObjectChanged:
            # `open` then opens the new content. A caller that has read a part of the old content detects the change.
            return None
        return body

    def _open_unknown(self, name: str, start: int, stop: int | None, interrupt: Interrupt | None) -> Body:
        """Open an object whose content is unknown. Cache its bytes if the answer states a strong validator."""
        body = self._store.open(name, start, stop, interrupt=interrupt)
        identity = body.info.identity.completed_by(Identity(size=body.info.size))
        if not identity.is_strong or not identity.size:
            return body
        cached = CachedBody(self, name, Content(self._key(name), identity), start, stop, interrupt)
        cached.begin_with(body)
        # Now `downloads` has this request, and other readers, which see the confirmation, can use it.
        self._confirm(name, identity)
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
        """Keep a request open after its reader has left, so that the next reader can continue the request."""
        self._parked.append((time.monotonic(), download))
        self._end_parked(keep=_MAX_PARKED)
        periodic.register(self)

    def on_tick(self) -> bool:
        """End the requests that have been parked for too long; return whether any request is still parked."""
        self._end_parked(keep=_MAX_PARKED, age=_PARKED_SECONDS)
        return bool(self._parked)

    def _end_parked(self, *, keep: int = 0, age: float = 0.0) -> None:
        """End parked requests, the oldest first, until at most `keep` are left.

        If `age` is not 0, also end all requests that were parked more than `age` seconds ago.
        """
        with contextlib.suppress(IndexError):  # another thread was faster
            while len(self._parked) > keep or (age and time.monotonic() - self._parked[0][0] > age):
                self._parked.popleft()[1].end_if_parked()

    def forget(self, name: str) -> None:
        with self._lock:
            self._identities.pop(name, None)
        self.blocks.cache.forget(self._key(name))

    def _key(self, name: str) -> str:
        """Return the key of an object in the block cache.

        The key includes the store, because two clusters may have buckets of the same name.
        """
        return f"{self._store!r} {self.full_url(name)}"

    def _known_identity(self, name: str, start: int, interrupt: Interrupt | None) -> Identity | None:
        """Return the identity of an object's content if the content is known; otherwise return None.

        The content counts as known if it was confirmed within the last `trust` seconds, or if a HEAD request confirms
        it now. If `start` is not 0, an identity that this store object has confirmed earlier suffices.
        """
        with self._lock:
            stated = self._identities.get(name)
        if start and stated is not None:
            return stated
        confirmed = self.blocks.cache.confirmed(self._key(name))
        if confirmed is None or not confirmed.identity.size:
            return self._identity_of_uncached(name, interrupt) if self._chosen_fraction else None
        # If the confirmation seems to come from the future, a clock was changed: confirm again.
        if not -1 <= self._clock() - confirmed.time < self._trust:
            now = self._current_identity(name, interrupt)
            if now is None or not confirmed.identity.is_proved_by(now):
                return None
            self._confirm(name, confirmed.identity)
        else:
            self._remember(name, confirmed.identity)
        return confirmed.identity

    def _identity_of_uncached(self, name: str, interrupt: Interrupt | None) -> Identity | None:
        """Ask the inner store for the identity of an object without cached blocks.

        Return None if the inner store states no strong identity.
        """
        now = self._current_identity(name, interrupt)
        if now is None or not now.is_strong or not now.size:
            return None
        self._confirm(name, now)
        return now

    def _fetch_blocks(
        self, name: str, content: Content, start: int, stop: int | None, interrupt: Interrupt | None
    ) -> None:
        """Fetch and cache the whole chosen blocks that hold a range, unless they are cached already."""
        size = content.identity.size
        assert size is not None
        numbers = block_numbers(start, size if stop is None else min(stop, size))
        for number in numbers if self._chosen_fraction else ():
            block = content.block(number)
            if not self._is_chosen(block) or self.blocks.has(block):
                continue
            with self._lock:
                if block in self._fetched_blocks:  # by another thread: do not wait, request the range
                    continue
                self._fetched_blocks.add(block)
            try:
                self.fetch_block(name, block, interrupt)
            finally:
                with self._lock:
                    self._fetched_blocks.discard(block)

    def _is_chosen(self, block: BlockId) -> bool:
        """Return whether a block is chosen to be cached whole.

        A hash of the object's key and the block's number decides, so that the answer is the same in all epochs.
        """
        if not 0 < self._chosen_fraction < 1:
            return self._chosen_fraction > 0
        label = f"{block.number} {block.content.key}".encode("utf-8", "surrogateescape")
        return xxhash.xxh3_64_intdigest(label) < self._chosen_fraction * 2**64

    def fetch_block(self, name: str, block: BlockId, interrupt: Interrupt | None) -> None:
        """Read a block from the inner store into the cache, unless it is cached already or cannot be written."""
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
        """Ask the inner store for the identity of an object by HEAD; return None if the store refuses HEAD."""
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
        """Request a range of an object from the inner store, and check that the object still has the known content.

        Raises:
            ObjectChanged: The answer does not prove that the object has the content with this `identity`.
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
    """Copy `left` bytes; return False if the body ended early, or writing failed."""
    scratch = memoryview(bytearray(_SCRATCH))
    while left > 0:
        count = body.readinto(scratch[:left])
        if not count or not writer.add(scratch[:count]):
            return False
        left -= count
    return True


class CachedRanges(CachedStore, MultiRange):
    """A CachedStore whose inner store answers a request for many ranges, also of several objects."""

    across_objects: bool = True

    @property
    def ranges_at_once(self) -> int:
        return self._store.ranges_at_once if isinstance(self._store, MultiRange) else 1

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer | None:
        """Fetch the requested ranges that are neither cached nor about to be cached, in one request.

        The pieces of all other ranges are None, so that the caller reads these ranges one by one through the cache.
        Return None if the caller must read all ranges in this way.
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
        """Return whether a range must be read through the cache.

        It must if one of its blocks is cached or chosen, and also if the content of the object is unknown, because
        only `open` finds out the content.
        """
        with self._lock:
            identity = self._identities.get(name)
        if identity is None:
            return True
        blocks = map(Content(self._key(name), identity).block, block_numbers(start, stop))
        return any(self._is_chosen(block) or self.blocks.has(block) for block in blocks)
