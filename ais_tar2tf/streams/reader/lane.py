"""The lane, which reads shards one after another, and knows the mark of the next record.

A lane takes bytes from `fetch`, members from `archive`, and records from `records`. A lane must not parse or download
by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ais_tar2tf.archive import Directory, find_directory
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ArchiveError, IndexMissing, StoreError
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.fetch.files import FileFetcher
from ais_tar2tf.options import MIN_READ_AHEAD
from ais_tar2tf.records import RecordBatch, Records
from ais_tar2tf.stores import LocalFiles
from ais_tar2tf.streams.order import Mark, Order, RecordLane
from ais_tar2tf.streams.order.windows import cut_batch
from ais_tar2tf.streams.reader.open_shard import OpenShard
from ais_tar2tf.streams.reader.sessions import ReadSession

__all__ = ["Lane"]


class Lane(RecordLane):
    """An open lane of an order. It reads every `lanes`-th step of the order, from the step of `mark` on.

    Args:
        session: The shards to read.
        order: The order.
        lanes: The number of lanes that share the order.
        mark: The place where the lane begins.
        account: Counts what the lane reads, and handles the errors of shards.
        read_ahead: The maximum number of bytes to download ahead. Default: the limit in the options.
    """

    def __init__(
        self,
        session: ReadSession,
        order: Order,
        lanes: int,
        mark: Mark,
        account: Account,
        read_ahead: int | None = None,
    ) -> None:
        self._shards = session.shards
        self._order = order
        self._lanes = lanes
        self._account = account
        self._start = mark
        self._closed = False
        self._fetch = _fetch(session, self._ranges(), account, read_ahead)
        self._side_fetch: Fetcher | None = None  # reads the directory of a zip while `_fetch` waits
        self._next_step = mark.step
        self._shard: OpenShard | None = None
        self._batch = RecordBatch()
        self._taken = 0  # how many records of the batch `take` has returned
        self._batch_shard = mark  # a mark with the step and the identity of the shard that the batch was read from
        # The number of records from the first record of the shard to the end of the batch. None if it is not known,
        # because the lane began inside the shard.
        self._counted: int | None = None
        self._after_batch = mark  # the mark of the first record after the batch

    def take(self, most: int, most_bytes: int, *, of_archive: bool = False) -> tuple[Records, int]:
        while self._taken == len(self._batch.sizes):
            if not self._advance():
                return Records(), 0
        begin, sizes = self._taken, self._batch.extents if of_archive else self._batch.sizes
        end, total = cut_batch(sizes, begin, most, most_bytes)
        taken = self._batch.records[begin:end]
        self._taken = end
        if end == len(sizes):  # drop the batch now, so that its memory is free before the next batch arrives
            self._batch, self._taken = RecordBatch(), 0
        return taken, total

    def read_ahead(self) -> None:
        """Open the first shard, so that the download of its bytes begins before `take` needs them."""
        if self._shard is None:
            self._open_next()

    @property
    def mark(self) -> Mark:
        if self._taken < len(self._batch.sizes):
            numbers = self._batch.numbers
            number = numbers[self._taken] if numbers else 0
            return replace(self._batch_shard, offset=self._batch.offsets[self._taken], number=number)
        return self._after_batch

    @property
    def last_shard(self) -> Mark:
        return self._batch_shard

    def places(self, count: Callable[[int], None]) -> Iterator[tuple[str, Mark, RecordBatch]]:
        """Read all shards. For each shard, yield its name, a mark with its identity, and a batch without records.

        The batch has the offsets, sizes and extents of all records of the shard, and the keys if the shard is
        compressed. The extent of a record is the distance from its offset to the offset of the next record. While a
        shard is read, `count` is called repeatedly with the number of records found since the previous call.
        """
        while self._open_next():
            shard, found = self._shard, RecordBatch()
            assert shard is not None
            while self._shard is shard:
                self._batch = RecordBatch()
                self._advance()
                found.add_places(self._batch, keys=shard.archive.compressed is True)
                count(len(self._batch.offsets))
            yield shard.name, self._batch_shard, found

    def close(self, *, grace: float = 0.0) -> None:
        """Close the fetchers and the open shard; `grace` is passed on to `Fetcher.close`."""
        self._closed = True
        if self._side_fetch is not None:
            self._side_fetch.close()
        self._fetch.close(grace=grace)
        if self._shard is not None:
            self._shard.close()

    # The ranges to fetch: one range for each step of the lane

    def _ranges(self) -> Iterator[ShardRange]:
        order, names = self._order, self._shards.names
        for step in range(self._start.step, len(order.shards), self._lanes):
            mark, stop = self._part(step)
            from_start = mark.compressed or not mark.offset
            yield ShardRange(
                names[order.shards[step]],
                0 if from_start else mark.offset,
                mark.identity,
                None if mark.compressed else stop,
                self._shards.begins(order.shards[step]),
                bound=bool(mark.offset) or stop is not None or mark.identity.is_stated,
            )

    def _part(self, step: int) -> tuple[Mark, int | None]:
        """Return the mark at which a step begins to read its shard, and the offset at which the step stops.

        The offset is None if the step reads to the end of the shard.
        """
        entry = self._shards.entry(self._order.shards[step])
        mark = self._start if step == self._start.step else Mark(step)
        if entry is None:
            return mark, None
        # If the mark says that the shard is compressed, `_ranges` requests the whole shard: offsets of records in it
        # count decompressed bytes, and state no place in the object.
        mark = replace(mark, identity=mark.identity.completed_by(entry.identity), compressed=entry.compressed)
        if not entry.placed:
            return mark, None
        cut = self._order.part(step)
        if cut is not None and cut.first and not mark.offset:
            mark = replace(mark, offset=entry.offset(cut.first), number=entry.number(cut.first))
        return mark, entry.offset(cut.stop) if cut is not None and cut.stop < entry.records else None

    def _first_number(self, step: int) -> int | None:
        """Return the number of the first record that a step reads in its shard.

        Return None if the lane begins at an offset inside the shard: the number of the record there may be unknown.
        """
        if step == self._start.step and self._start.offset:
            return None
        cut = self._order.part(step)
        return 0 if cut is None else cut.first

    # Reading
    #
    # The lane holds one batch of records, from which `take` returns records. When the batch is used up, `_advance`
    # makes the next batch, which may be empty. A call of `_read_on` does the first action of this list that is due:
    #
    # 1. Make a batch of the members that the archive has parsed.
    # 2. Read the directory of a zip.
    # 3. Skip bytes that the archive does not need, and feed the next bytes to the archive.
    # 4. Finish the shard.

    def _advance(self) -> bool:
        """Read on in the open shard, or open the next shard. Return False after the last shard."""
        shard = self._shard
        if shard is None:
            return self._open_next()
        try:
            self._read_on(shard)
        except (StoreError, ArchiveError) as error:
            if self._closed or self._fetch.closed or shard.orphaned:
                shard.close()
                raise  # the cause is `close` or a fork, not the shard
            self._leave(shard)
            self._account.shard_error(error)
            if isinstance(error, ArchiveError):
                self._set_batch(shard, shard.last_complete())
        return True

    def _open_next(self) -> bool:
        shard_range = self._fetch.next_shard()
        if shard_range is None:
            return False
        mark, stop = self._part(self._next_step)
        self._counted = self._first_number(self._next_step)
        self._next_step += self._lanes
        self._shard = OpenShard(self._shards, shard_range.name, mark, stop, self._account)
        if not self._order.by_single_records:
            self._account.add(shards=1)
        return True

    def _read_on(self, shard: OpenShard) -> None:
        shard.grouper.raise_failure()  # an error that ended the last batch; its records have been returned first
        members = next(shard.members, None)
        if members is not None:
            self._set_batch(shard, shard.grouper.add(members))
            pending = shard.grouper.pending_offset
            if shard.stops_before(pending):
                self._leave(shard)
            elif pending is not None:
                self._after_batch = replace(self._batch_shard, offset=pending, number=shard.grouper.number)
            return
        if shard.archive.needs_directory:
            shard.members = shard.archive.resume(self._find_directory(shard))
            return
        if gap := shard.archive.gap:
            shard.archive.skip(self._fetch.jump(gap))
        if shard.feed(self._fetch):
            return
        self._set_batch(shard, shard.finish())
        self._check_count(shard)
        self._leave(shard)

    def _set_batch(self, shard: OpenShard, batch: RecordBatch) -> None:
        if shard.stop is not None and batch.offsets and batch.offsets[-1] >= shard.stop:
            batch = batch.before(shard.stop)
        if self._counted is not None:
            self._counted += len(batch.offsets)
        self._batch, self._taken = batch, 0
        self._batch_shard = Mark(shard.step, 0, bool(shard.archive.compressed), self._fetch.identity)

    def _check_count(self, shard: OpenShard) -> None:
        """Check that the index states the right number of records of a shard: the shares of hosts depend on it.

        Nothing is checked without an index, or if the number is not known because only a part of the shard was read.
        """
        entry = self._shards.entry(self._order.shards[shard.step])
        if entry is None or shard.stop is not None or self._counted in (None, entry.records):
            return
        raise IndexMissing(
            f"the shard has {self._counted:,} records, and its index says {entry.records:,}; write it again by "
            "t2t.index(…)",
            url=self._shards.store.url(shard.name),
        )

    def _leave(self, shard: OpenShard) -> None:
        self._account.add(ignored=shard.archive.ignored)
        shard.close()
        self._shard = None
        self._after_batch = Mark(self._next_step)

    # Directories of zips

    def _find_directory(self, shard: OpenShard) -> Directory:
        """Read the directory of a zip by range requests. The directory is at the end of the zip."""
        url, limits = self._shards.store.url(shard.name), self._shards.read.limits
        if self._fetch.size is None:
            raise StoreError(
                "the store does not say how long this zip is, so its directory cannot be found; some of its members "
                "don't say how long they are, either",
                url=url,
            )
        return find_directory(url, limits, self._fetch.size, partial(self._read_range, shard))

    def _read_range(self, shard: OpenShard, start: int, stop: int) -> bytes:
        """Read a range of the object that `_fetch` is reading, by another request.

        The object may have been replaced since `_fetch` began to read it. If the identity is strong (see
        `Identity.is_strong`), this request then fails. If it is weak, the request brings the directory of the new
        object, and an error is raised later: the members that were read do not fit the sizes and checksums in it.
        """
        identity = self._fetch.identity
        wanted = ShardRange(shard.name, start, replace(identity, fingerprint=""), stop, bound=identity.is_strong)
        read = replace(self._shards.read, connections=1)
        fetch = Fetcher(self._shards.store, iter((wanted,)), read, self._account, read_ahead_bytes=MIN_READ_AHEAD)
        self._side_fetch = fetch
        try:
            fetch.next_shard()
            blocks: list[bytes] = []
            while block := fetch.read():
                blocks.append(bytes(block))
        finally:
            self._side_fetch = None
            fetch.close()
        return b"".join(blocks)


def _fetch(
    session: ReadSession, ranges: Iterator[ShardRange], account: Account, read_ahead: int | None
) -> Fetcher | FileFetcher:
    store, read = session.shards.store, session.shards.read
    if isinstance(store, LocalFiles):
        return FileFetcher(store, ranges, read, account, read_ahead_bytes=read_ahead)
    return Fetcher(store, ranges, read, account, read_ahead_bytes=read_ahead, tuning=session.tuning)
