"""fetch → archive → records: shards one after another, and where the next record begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Directory, DirectoryFinder
from ais_tar2tf.errors import ArchiveError, IndexMissing, StoreError
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.fetch.files import FileFetch
from ais_tar2tf.options import LEAST_READ_AHEAD
from ais_tar2tf.plan import Mark, Order
from ais_tar2tf.plan.single_records import SingleRecords
from ais_tar2tf.plan.windows import cut_batch
from ais_tar2tf.reader.open_shard import OpenShard
from ais_tar2tf.reader.shards import Shards
from ais_tar2tf.records import RecordBatch, Records
from ais_tar2tf.stores.file import FileStore

__all__ = ["Lane"]


class Lane:
    """Every `step`-th shard of an order, from a mark on."""

    def __init__(
        self,
        shards: Shards,
        order: Order,
        step: int,
        mark: Mark,
        account: Account,
        read_ahead: int | None = None,
    ) -> None:
        self._shards = shards
        self._order = order
        self._step = step
        self._account = account
        self._start = mark
        self._closed = False
        self._fetch = _fetch(shards, self._spans(), account, read_ahead)
        self._aside: Fetch | None = None  # beside the stream, while a directory is looked for
        self._next_at = mark.at
        self._shard: OpenShard | None = None
        self._batch = RecordBatch()
        self._taken = 0  # of the batch
        self._of_batch = mark  # the batch's shard, as a mark
        self._counted: int | None = None  # records of the shard that came; None: where reading it began is not known
        self._behind = mark  # where the first record behind the batch begins

    def take(self, most: int, most_bytes: int, *, of_archive: bool = False) -> tuple[Records, int]:
        """Up to `most` records, and their bytes; it ends with the record that reaches `most_bytes`. None at the end.

        `of_archive`: bytes are what records take of the archive, which depends on no selection.
        """
        while self._taken == len(self._batch.sizes):
            if not self._advance():
                return Records(), 0
        begin, sizes = self._taken, self._batch.extents if of_archive else self._batch.sizes
        end, total = cut_batch(sizes, begin, most, most_bytes)
        taken = self._batch.records[begin:end]
        self._taken = end
        if end == len(sizes):  # nobody else needs it: what was taken is not held here until the next one comes
            self._batch, self._taken = RecordBatch(), 0
        return taken, total

    def read_ahead(self) -> None:
        if self._shard is None:
            self._open_next()

    @property
    def mark(self) -> Mark:
        """Of the next record that `take` will give."""
        if self._taken < len(self._batch.sizes):
            numbers = self._batch.numbers
            number = numbers[self._taken] if numbers else 0
            return replace(self._of_batch, offset=self._batch.offsets[self._taken], number=number)
        return self._behind

    def places(self, found: Callable[[int], None]) -> Iterator[tuple[str, Mark, RecordBatch]]:
        """Instead of `take`: of each shard in turn, which content it had, and where its records are."""
        while self._open_next():
            shard, seen = self._shard, RecordBatch()
            assert shard is not None
            while self._shard is shard:
                self._batch = RecordBatch()
                self._advance()
                seen.add_places(self._batch, keys=shard.archive.compressed is True)
                found(len(self._batch.offsets))
            yield shard.name, self._of_batch, seen

    @property
    def read(self) -> Mark:
        """The shard whose records came last, and its content."""
        return self._of_batch

    def close(self, *, grace: float = 0.0) -> None:
        """Close what is open; `grace` as `Fetch.close` takes it."""
        self._closed = True
        if self._aside is not None:
            self._aside.close()
        self._fetch.close(grace=grace)
        if self._shard is not None:
            self._shard.close()

    def _spans(self) -> Iterator[Span]:
        order, names = self._order, self._shards.names
        for at in range(self._start.at, len(order.shards), self._step):
            mark, stop = self._part(at)
            whole = mark.compressed or not mark.offset
            yield Span(
                names[order.shards[at]],
                0 if whole else mark.offset,
                mark.identity,
                None if mark.compressed else stop,
                self._shards.begins(order.shards[at]),
                bound=bool(mark.offset) or stop is not None or mark.identity.is_told,
            )

    def _part(self, at: int) -> tuple[Mark, int | None]:
        """Where reading the `at`-th shard begins, and before which record it stops (None: it does not)."""
        known = self._shards.known(self._order.shards[at])
        mark = self._start if at == self._start.at else Mark(at)
        if known is None:
            return mark, None
        mark = replace(mark, identity=mark.identity.completed_by(known.identity))
        if not known.placed:
            return mark, None
        cut = self._order.cuts.get(at)
        if cut is not None and cut.first and not mark.offset:
            mark = replace(
                mark, offset=known.offset(cut.first), compressed=known.compressed, number=known.number(cut.first)
            )
        return mark, known.offset(cut.behind) if cut is not None and cut.behind < known.records else None

    def _first(self, at: int) -> int | None:
        """The number, in the `at`-th shard, of the record with which reading it begins; None if it is not known."""
        if at == self._start.at and self._start.offset:
            return None
        cut = self._order.cuts.get(at)
        return 0 if cut is None else cut.first

    def _advance(self) -> bool:
        """Read the next few members, or open the next shard; False behind the last."""
        shard = self._shard
        if shard is None:
            return self._open_next()
        try:
            self._read_on(shard)
        except (StoreError, ArchiveError) as error:
            if self._closed or self._fetch.closed or shard.lost:
                shard.close()
                raise  # nothing is wrong with the shard
            self._leave(shard)
            self._account.shard_error(error)
            if isinstance(error, ArchiveError):
                self._show(shard, shard.last_whole())
        return True

    def _open_next(self) -> bool:
        span = self._fetch.next_shard()
        if span is None:
            return False
        mark, stop = self._part(self._next_at)
        self._counted = self._first(self._next_at)
        self._next_at += self._step
        self._shard = OpenShard(self._shards, span.name, mark, stop, self._account)
        if not isinstance(self._order.shards, SingleRecords):
            self._account.add(shards=1)
        return True

    def _read_on(self, shard: OpenShard) -> None:
        shard.grouper.raise_failure()  # it came before what the archive says next
        members = next(shard.members, None)
        if members is not None:
            self._show(shard, shard.grouper.add(members))
            kept = shard.grouper.kept_back_at
            if shard.is_behind(kept):
                self._leave(shard)
            elif kept is not None:
                self._behind = replace(self._of_batch, offset=kept, number=shard.grouper.number)
            return
        if shard.archive.missing:
            shard.members = shard.archive.resume(self._find_directory(shard))
            return
        if gap := shard.archive.gap:
            shard.archive.pass_over(self._fetch.jump(gap))
        if shard.feed(self._fetch):
            return
        self._show(shard, shard.finish())
        self._check_count(shard)
        self._leave(shard)

    def _find_directory(self, shard: OpenShard) -> Directory:
        """The directory of a zip, from the end of the object: by ranges, beside the stream."""
        url, limits = self._shards.store.url(shard.name), self._shards.read.limits
        if self._fetch.size is None:
            raise StoreError(
                "the store does not say how long this zip is, so its directory cannot be found; some of its members "
                "don't say how long they are, either",
                url=url,
            )
        finder = DirectoryFinder(url, limits, self._fetch.size)
        while finder.needs is not None:
            start, stop = finder.needs
            finder.give(self._read_aside(shard, start, stop))
        assert finder.directory is not None
        return finder.directory

    def _read_aside(self, shard: OpenShard, start: int, stop: int) -> bytes:
        """A range of the same object, bound to the content that the stream has.

        Where nothing proves that, the sizes and checksums in the directory do: each member is compared with them.
        """
        identity = self._fetch.identity
        span = Span(shard.name, start, replace(identity, seen=""), stop, bound=identity.is_strong)
        read = replace(self._shards.read, connections=1)
        aside = Fetch(self._shards.store, iter((span,)), read, self._account, read_ahead_bytes=LEAST_READ_AHEAD)
        self._aside = aside
        try:
            aside.next_shard()
            pieces: list[bytes] = []
            while block := aside.read():
                pieces.append(bytes(block))
        finally:
            self._aside = None
            aside.close()
        return b"".join(pieces)

    def _show(self, shard: OpenShard, batch: RecordBatch) -> None:
        if batch.offsets and shard.is_behind(batch.offsets[-1]):
            batch = batch.until(shard.stop)
        if self._counted is not None:
            self._counted += len(batch.offsets)
        self._batch, self._taken = batch, 0
        self._of_batch = Mark(shard.at, 0, bool(shard.archive.compressed), self._fetch.identity)

    def _check_count(self, shard: OpenShard) -> None:
        """At the end of a shard, its index has to know as many records: shares of hosts and lengths rest on that."""
        known = self._shards.known(self._order.shards[shard.at])
        if known is None or shard.stop is not None or self._counted in (None, known.records):
            return
        raise IndexMissing(
            f"the shard has {self._counted:,} records, and its index says {known.records:,}; write it again by "
            "t2t.index(…)",
            url=self._shards.store.url(shard.name),
        )

    def _leave(self, shard: OpenShard) -> None:
        self._account.add(ignored=shard.archive.ignored)
        shard.close()
        self._shard = None
        self._behind = Mark(self._next_at)


def _fetch(shards: Shards, spans: Iterator[Span], account: Account, read_ahead: int | None) -> Fetch | FileFetch:
    if isinstance(shards.store, FileStore):
        return FileFetch(shards.store, spans, shards.read, account)
    return Fetch(shards.store, spans, shards.read, account, read_ahead_bytes=read_ahead, tuning=shards.tuning)
