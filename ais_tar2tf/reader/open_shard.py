"""The shard that a lane is in: bytes → members → records."""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Members, ShardArchive
from ais_tar2tf.examples import ExampleGrouper
from ais_tar2tf.fetch import Fetch
from ais_tar2tf.fetch.ahead import Ahead
from ais_tar2tf.fetch.files import FileFetch
from ais_tar2tf.options import MIB
from ais_tar2tf.plan import Mark
from ais_tar2tf.reader.shards import Shards
from ais_tar2tf.records import Grouper, RecordBatch

__all__ = ["OpenShard"]

_DECODED_AHEAD = 1 * MIB  # what a compressed shard has, from where on a thread for it pays


class OpenShard:
    """The shard that a lane is in: its archive and its grouping."""

    def __init__(self, shards: Shards, name: str, mark: Mark, stop: int | None, account: Account) -> None:
        url, limits, selection = shards.store.url(name), shards.read.limits, shards.selection
        self.at = mark.at
        self._url = url
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
        self._ahead: Ahead[bytes] | None = None  # decompresses, where that takes a while

    @property
    def grouper(self) -> Grouper | ExampleGrouper:
        return self._examples if self.archive.container == "tfrecord" else self._by_name

    def feed(self, fetch: Fetch | FileFetch) -> bool:
        """Go on to the members of the next bytes; False behind the last."""
        if self._ahead is None and self.archive.decodes and (fetch.size or _DECODED_AHEAD) >= _DECODED_AHEAD:
            pieces = _pieces(self.archive, fetch)
            self._ahead = Ahead(lambda: next(pieces, b""), self._url)
        if self._ahead is None:
            data = fetch.read()
            if data:
                self.members = self.archive.feed(data)
            return bool(data)
        while (decoded := self._ahead.take()) is None:
            fetch.has_come(wait=True)
        if decoded:
            self.members = self.archive.feed_decoded(decoded)
        return bool(decoded)

    @property
    def lost(self) -> bool:
        """Whether a forked child waits for its parent's thread."""
        return self._ahead is not None and self._ahead.lost

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()

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

    def last_whole(self) -> RecordBatch:
        """The last record of a shard that is given up, where nothing of it can be missing; else no record."""
        is_whole = self.archive.ended and not self.grouper.failed
        return self.grouper.finish(self.archive.end) if is_whole else RecordBatch()


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
