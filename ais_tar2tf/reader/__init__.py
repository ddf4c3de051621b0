"""fetch → archive → records: the records of a plan, from any position on, and the position behind each of them.

A *lane* reads its shards one after another. A *stream* hands records out in the plan's order: one lane as it
comes, or windows over several lanes, permuted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Directory, DirectoryFinder, Members, ShardArchive
from ais_tar2tf.errors import ArchiveError, StoreError
from ais_tar2tf.examples import ExampleGrouper
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.fetch.ahead import Ahead
from ais_tar2tf.fetch.files import FileFetch
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import LEAST_READ_AHEAD, MIB, Read
from ais_tar2tf.plan import Mark, Order, Plan, Position
from ais_tar2tf.plan.single_records import SingleRecords
from ais_tar2tf.reader.epochs import EpochStream
from ais_tar2tf.reader.window import Window
from ais_tar2tf.records import Grouper, Grouping, Record, RecordBatch, Records, Selection
from ais_tar2tf.shard_index import Cut, Index, ShardIndex
from ais_tar2tf.stores import Identity, Store
from ais_tar2tf.stores.file import FileStore

__all__ = ["RecordStream", "Shards", "read_part", "read_places"]

_DECODED_AHEAD = 1 * MIB  # what a compressed shard has, from where on a thread for it pays


@dataclass(frozen=True)
class Shards:
    """What is read, and how: everything a lane needs beside where to begin."""

    store: Store
    names: Sequence[str]
    read: Read = field(default_factory=Read)
    grouping: Grouping = "first-dot"
    selection: Selection | None = None
    index: Index | None = None  # that is true of all of them
    layout: Index | None = None  # where records are likely to begin; wrong, it costs requests and nothing else
    check: Callable[[str, int], None] | None = None  # what a store says to the records of a shard that was read whole
    streams: weakref.WeakSet[RecordStream] = field(default_factory=lambda: weakref.WeakSet[RecordStream]())
    tuning: Tuning | None = None  # of all that read these; one of its own when none is given

    def __post_init__(self) -> None:
        if self.tuning is None:
            object.__setattr__(self, "tuning", Tuning(self.read))

    def known(self, number: int) -> ShardIndex | None:
        """What the index says of a shard."""
        return None if self.index is None else self.index.get(self.names[number])

    def among(self, read: Read, readers: int) -> Shards:
        """For one of several readers at once, each of which reads as `read` says and knows what all of them found."""
        assert self.tuning is not None
        return replace(self, read=read, tuning=self.tuning.among(read, readers))

    def begins(self, number: int) -> Callable[[], Sequence[int]] | None:
        """What tells where the records of a shard are likely to begin."""
        layout = (self.index or self.layout) if self.selection is not None else None
        known = None if layout is None else layout.get(self.names[number])
        return known.begins if known is not None and known.placed and not known.compressed else None

    def close(self) -> None:
        """No stream of these shards stays open, and no connection is kept."""
        for stream in list(self.streams):
            stream.close()
        self.store.close()


class _Shard:
    """The shard that a lane is in: its archive and its grouping."""

    def __init__(self, shards: Shards, name: str, mark: Mark, stop: int | None, account: Account) -> None:
        url, limits, selection = shards.store.url(name), shards.read.limits, shards.selection
        self.at = mark.at
        self.name = name
        self._check = None if mark.offset else shards.check
        self.stop = stop  # where the first record begins that is not read any more
        self._by_name = Grouper(url, account, limits, grouping=shards.grouping, selection=selection)
        self._examples = ExampleGrouper(url, account, limits, number=mark.number, selection=selection)
        self.archive = ShardArchive(
            url,
            limits,
            start=mark.offset,
            number=mark.number,
            compressed=mark.compressed if mark.offset else None,
            wanted=self._by_name.wants,
            allow_missing_end=shards.read.allow_missing_end,
            allow_concatenated=shards.read.allow_concatenated,
        )
        self.members: Iterator[Members] = iter(())
        self.ahead: Ahead[bytes] | None = None  # decompresses, where that takes a while

    @property
    def grouper(self) -> Grouper | ExampleGrouper:
        return self._examples if self.archive.container == "tfrecord" else self._by_name

    @property
    def lost(self) -> bool:
        """Whether a forked child waits for its parent's thread."""
        return self.ahead is not None and self.ahead.lost

    def close(self) -> None:
        if self.ahead is not None:
            self.ahead.close()

    def is_behind(self, offset: int | None) -> bool:
        return self.stop is not None and offset is not None and offset >= self.stop

    def finish(self) -> RecordBatch:
        """The last record; what was cut short by `stop` has no end mark."""
        if self.stop is None or self.archive.compressed:
            self.archive.finish()
        batch = self.grouper.finish(self.archive.end if self.stop is None else self.stop)
        if self._check is not None:
            self._check(self.name, self._by_name.keys)
        return batch


class _Lane:
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
        self._shard: _Shard | None = None
        self._batch = RecordBatch()
        self._taken = 0  # of the batch
        self._of_batch = mark  # the batch's shard, as a mark
        self._behind = mark  # where the first record behind the batch begins

    def take(self, most: int, most_bytes: int, *, of_archive: bool = False) -> tuple[Records, int]:
        """Up to `most` records, and their bytes; it ends with the record that reaches `most_bytes`. None at the end.

        `of_archive`: bytes are what records take of the archive, which depends on no selection.
        """
        while self._taken == len(self._batch.sizes):
            if not self._advance():
                return Records(), 0
        begin, sizes = self._taken, self._batch.extents if of_archive else self._batch.sizes
        end = min(len(sizes), begin + most)
        total = sum(sizes[begin:end])
        while end > begin + 1 and total - sizes[end - 1] >= most_bytes:
            end -= 1
            total -= sizes[end]
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
    def identity(self) -> Identity:
        """Of the shard whose records came last."""
        return self._of_batch.identity

    def close(self) -> None:
        self._closed = True
        if self._aside is not None:
            self._aside.close()
        self._fetch.close()
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
        return True

    def _open_next(self) -> bool:
        span = self._fetch.next_shard()
        if span is None:
            return False
        mark, stop = self._part(self._next_at)
        self._next_at += self._step
        self._shard = _Shard(self._shards, span.name, mark, stop, self._account)
        if not isinstance(self._order.shards, SingleRecords):
            self._account.add(shards=1)
        return True

    def _read_on(self, shard: _Shard) -> None:
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
        if self._feed(shard):
            return
        self._show(shard, shard.finish())
        self._leave(shard)

    def _feed(self, shard: _Shard) -> bool:
        """Go on to the members of the next bytes; False behind the last."""
        if (
            shard.ahead is None
            and shard.archive.compressed
            and (self._fetch.size or _DECODED_AHEAD) >= _DECODED_AHEAD
        ):
            pieces = _pieces(shard.archive, self._fetch)
            shard.ahead = Ahead(lambda: next(pieces, b""), self._shards.store.url(shard.name))
        if shard.ahead is None:
            data = self._fetch.read()
            if data:
                shard.members = shard.archive.feed(data)
            return bool(data)
        while (decoded := shard.ahead.take()) is None:
            self._fetch.has_come(wait=True)
        if decoded:
            shard.members = shard.archive.feed_decoded(decoded)
        return bool(decoded)

    def _find_directory(self, shard: _Shard) -> Directory:
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

    def _read_aside(self, shard: _Shard, start: int, stop: int) -> bytes:
        """A range of the same object, whose content is bound to what the stream has of it."""
        span = Span(shard.name, start, self._fetch.identity, stop)
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

    def _show(self, shard: _Shard, batch: RecordBatch) -> None:
        if batch.offsets and shard.is_behind(batch.offsets[-1]):
            batch = batch.until(shard.stop)
        self._batch, self._taken = batch, 0
        self._of_batch = Mark(shard.at, 0, bool(shard.archive.compressed), self._fetch.identity)

    def _leave(self, shard: _Shard) -> None:
        self._account.add(ignored=shard.archive.ignored)
        shard.close()
        self._shard = None
        self._behind = Mark(self._next_at)


def _pieces(archive: ShardArchive, fetch: Fetch | FileFetch) -> Iterator[bytes | None]:
    """What a compressed shard holds, piece by piece; None where the next bytes of it have not come."""
    while True:
        if not fetch.has_come():
            yield None
            continue
        block = fetch.read()
        if not block:
            return
        yield from archive.decode(block)


def _fetch(shards: Shards, spans: Iterator[Span], account: Account, read_ahead: int | None) -> Fetch | FileFetch:
    if isinstance(shards.store, FileStore):
        return FileFetch(shards.store, spans, shards.read, account)
    return Fetch(shards.store, spans, shards.read, account, read_ahead_bytes=read_ahead, tuning=shards.tuning)


def read_part(shards: Shards, number: int, cut: Cut, account: Account) -> list[Record]:
    """Some records of one shard: by a range, where the index says which; else from its start on."""
    known = shards.known(number)
    placed = known is not None and known.placed
    order = Order([number], {0: cut} if placed else {})
    lane = _Lane(shards, order, 1, Mark(0), account, LEAST_READ_AHEAD)
    found: list[Record] = []
    to_pass, wanted = 0 if placed else cut.first, cut.behind - cut.first
    try:
        while len(found) < wanted:
            taken, _ = lane.take(to_pass or wanted - len(found), shards.read.limits.record_bytes)
            if not taken:
                break
            if to_pass:
                to_pass -= len(taken)
            else:
                found += taken
    finally:
        lane.close()
    return found


def read_places(
    shards: Shards, account: Account, found: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[str, Mark, RecordBatch]]:
    """Of every shard, read to its end: which content it had, and where its records are; the records are not kept.

    `found` is called with how many more there are, as they come.
    """
    whole = replace(shards, selection=None)
    order = Order(range(len(shards.names)))
    lane = _Lane(whole, order, 1, Mark(0), account)
    try:
        yield from lane.places(found)
    finally:
        lane.close()


class RecordStream(EpochStream):
    """The records of a plan from `position` on, in chunks; between two chunks, `position` says where it is."""

    def __init__(self, shards: Shards, plan: Plan, position: Position, account: Account) -> None:
        self._shards = shards
        self._plan = plan
        self._account = account
        self._limits = shards.read.limits
        lanes = len(position.marks)
        self._of_lane = shards.among(shards.read.of_lane(lanes), lanes) if lanes > 1 else shards
        self.position: Position = position
        self._lanes: list[_Lane] = []
        self._window = Window(0 if plan.shuffle is None else plan.shuffle.window_bytes)
        self._behind_window: Position | None = None
        self._failure: Exception | None = None
        self._closed = False
        shards.streams.add(self)
        self._open_lanes()

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        if self._closed:
            raise StoreError("these shards were closed while they were read", url=self._shards.store.url(""))
        most = min(most or self._limits.chunk_records, self._limits.chunk_records)
        chunk = self._next_in_window(most) if self._plan.in_windows else self._next_in_order(most, full)
        if chunk:
            self.position = replace(self.position, count=self.position.count + len(chunk))
        return chunk

    @property
    def chunk_bytes(self) -> int:
        assert self._of_lane.tuning is not None
        return self._of_lane.tuning.chunk_bytes

    @property
    def identity(self) -> Identity:
        """Of the shard whose records came last, from the first lane."""
        return self._lanes[0].identity

    def read_ahead(self) -> None:
        """Open the first shard of each lane, so that its bytes come before they are asked for."""
        for lane in self._lanes:
            lane.read_ahead()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._close_lanes()

    def _close_lanes(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._window.clear()
        self._behind_window = None

    def _open_lanes(self) -> None:
        position = self.position
        order = self._plan.order(position.epoch, position.seed)
        step = len(position.marks)
        self._lanes = [_Lane(self._of_lane, order, step, mark, self._account) for mark in position.marks]

    def begin_next_epoch(self) -> bool:
        following = self._plan.next_epoch(self.position)
        if following is None:
            return False
        self._close_lanes()
        self.position = following
        self._open_lanes()
        return True

    def _next_in_order(self, most: int, full: bool) -> Records:
        if self._failure is not None:
            raise self._failure
        (lane,) = self._lanes
        chunk_bytes = self.chunk_bytes
        chunk, size = lane.take(most, chunk_bytes)
        self.position = replace(self.position, marks=(lane.mark,))
        while full and 0 < len(chunk) < most and size < chunk_bytes:
            try:
                more, more_size = lane.take(most - len(chunk), chunk_bytes - size)
            except Exception as error:  # noqa: BLE001  # it comes behind the records before it, in the next call
                self._failure = error
                break
            if not more:
                break
            chunk.extend(more)
            size += more_size
            self.position = replace(self.position, marks=(lane.mark,))
        return chunk

    def _next_in_window(self, most: int) -> Records:
        while self._behind_window is None or self.position.emitted == len(self._window):
            if self._behind_window is not None:
                self.position = replace(self._behind_window, count=self.position.count)
            self._fill_window()
            if not len(self._window):
                return Records()
        chunk = self._window.take(self.position.emitted, most, self.chunk_bytes)
        self.position = replace(self.position, emitted=self.position.emitted + len(chunk))
        return chunk

    def _fill_window(self) -> None:
        """Read the window that begins at the position, in turns over the lanes, and permute it."""
        shuffle = self._plan.shuffle
        assert shuffle is not None
        begin = self.position
        window = self._window
        window.clear()
        size, lane, turn, ended = 0, begin.lane, begin.turn, 0
        while len(window) < shuffle.window and size < shuffle.window_bytes and ended < len(self._lanes):
            most = min(shuffle.turn - turn, shuffle.window - len(window))
            taken, taken_bytes = self._lanes[lane].take(most, shuffle.window_bytes - size, of_archive=True)
            window.add(taken, taken_bytes)
            size += taken_bytes
            turn += len(taken)
            ended = 0 if taken else ended + 1
            if not taken or turn == shuffle.turn:
                lane, turn = (lane + 1) % len(self._lanes), 0
        window.permute(self._plan.window_order(len(window), begin))
        self._behind_window = replace(
            begin,
            marks=tuple(lane.mark for lane in self._lanes),
            lane=lane,
            turn=turn,
            window=begin.window + 1,
            emitted=0,
        )
