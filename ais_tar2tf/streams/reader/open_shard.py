"""The open shard of a lane. Its bytes become members, and its members become records.

This module must not download, parse or group by itself: it connects `fetch`, `archive` and `records`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.archive import Members, ShardArchive
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.fetch import Fetcher
from ais_tar2tf.fetch.decode_ahead import DecodeAhead
from ais_tar2tf.fetch.files import FileFetcher
from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.records import Grouper, RecordBatch, RecordGrouper
from ais_tar2tf.streams.in_cluster.store import ChecksRecords
from ais_tar2tf.streams.order import Mark
from ais_tar2tf.streams.reader.shard_list import Shards
from ais_tar2tf.values.example_grouper import ExampleGrouper

__all__ = ["OpenShard"]

_WALKED = 16 * MIB  # bytes of a file in which members are found at once, while their bodies are not read
_NOTICED = 32 * KIB  # bytes; smaller members of a file count as read, even if their fields are not selected
_THREAD_FROM = 1 * MIB  # the smallest compressed shard for which a thread that decompresses is worth its cost


class OpenShard:
    """An open shard, with its archive and the grouper of its members.

    Args:
        shards: The shards of the session, their store and their options.
        name: The name of this shard.
        mark: Where reading begins in the shard.
        stop: Records that begin at this offset or later are not read; None for the end of the shard.
        account: Counts records and errors.
    """

    def __init__(self, shards: Shards, name: str, mark: Mark, stop: int | None, account: Account) -> None:
        url, limits, selection = shards.store.url(name), shards.read.limits, shards.selection
        self.step: int = mark.step
        self.name: str = name
        self.stop: int | None = stop
        self._url = url
        self._checks = shards.store if isinstance(shards.store, ChecksRecords) and not mark.offset else None
        self._in_blocks = shards.in_blocks
        self._selects = selection is not None
        # Fields that TensorFlow reads from the file cannot be skipped if the file turns out to be unreadable.
        self._may_walk = account.raises or not shards.in_blocks
        # `_by_name` groups members of a tar or zip, `_examples` payloads of a TFRecord file. `grouper` selects one.
        self._by_name = Grouper(
            url, account, limits, grouping=shards.grouping, selection=selection, in_blocks=shards.in_blocks
        )
        self._examples = ExampleGrouper(url, account, limits, number=mark.number, selection=selection)
        self.archive: ShardArchive = ShardArchive(
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
        self._decompressed: DecodeAhead[bytes] | None = None  # the thread that decompresses, if there is one

    @property
    def grouper(self) -> RecordGrouper:
        """The grouper for this kind of archive. Before the first bytes are fed, the kind is not known."""
        return self._examples if self.archive.container == "tfrecord" else self._by_name

    def feed(self, fetch: Fetcher | FileFetcher) -> bool:
        """Read the next bytes, and set `members` to their members; return False at the end of the shard."""
        large = (fetch.size or _THREAD_FROM) >= _THREAD_FROM
        if self._decompressed is None and self.archive.has_decoder and large:
            blocks = _decompressed_blocks(self.archive, fetch)
            self._decompressed = DecodeAhead(lambda: next(blocks, b""), self._url)
        if self._decompressed is None:
            if self._may_walk and isinstance(fetch, FileFetcher) and self._walk(fetch):
                return True
            again = self.archive.again
            data = fetch.read(keep=self._in_blocks, again=again)
            # If little has come since, the next block may be as small: the same bytes would be read many times.
            most_again = min(len(data), fetch.most_again) if len(data) - again > again else 0
            if data:
                self.members = self.archive.feed(data, most_again)
            return bool(data)
        while (decoded := self._decompressed.next()) is None:
            fetch.is_ready(wait=True)
        if decoded:
            self.members = self.archive.feed_decoded(decoded)
        return bool(decoded)

    def _walk(self, fetch: FileFetcher) -> bool:
        """Find members in the file itself if they are large; return False if the next bytes have to be fed."""
        content = fetch.content
        most = _WALKED if self._in_blocks else fetch.records_bytes
        members = None if content is None else self.archive.walk(*content, most)
        if members is None:
            return False
        self.members = iter((members,))
        unread = 0
        if self._selects:
            at = fetch.offset  # a member that begins before it was counted as far as it was read
            places = zip(members.names, members.starts, members.sizes, strict=True)
            unread = sum(
                max(0, start + size - max(start, at))
                for name, start, size in places
                if size >= _NOTICED and not self._by_name.wants(name)
            )
        fetch.continue_at(self.archive.position, unread)
        return True

    @property
    def orphaned(self) -> bool:
        """Whether this is a forked child, and the thread that decompresses was at work in the parent at the fork.

        The result of that thread then exists only in the parent.
        """
        return self._decompressed is not None and self._decompressed.lost_step

    def close(self) -> None:
        """Stop the thread that decompresses."""
        if self._decompressed is not None:
            self._decompressed.close()

    def stops_before(self, offset: int | None) -> bool:
        """Return whether a record that begins at `offset` is outside the part that is read."""
        return self.stop is not None and offset is not None and offset >= self.stop

    def finish(self) -> RecordBatch:
        """Return the last record. The caller has fed all bytes before.

        First check that the archive is complete, unless only the bytes before `stop` were read. A compressed shard is
        always read to its end.
        """
        if self.stop is None or self.archive.compressed:
            self.archive.finish()
        batch = self.grouper.finish(self.archive.end if self.stop is None else self.stop)
        if self._checks is not None:
            self._checks.check_records(self.name, self._by_name.keys)
        return batch

    def last_complete(self) -> RecordBatch:
        """Return the last record of a shard whose reading failed; no record if the last one may be incomplete."""
        complete = self.archive.ended and not self.grouper.failed
        return self.grouper.finish(self.archive.end) if complete else RecordBatch()


def _decompressed_blocks(archive: ShardArchive, fetch: Fetcher | FileFetcher) -> Iterator[bytes | None]:
    """Yield the decompressed blocks of a shard. While the next bytes have not arrived, yield None."""
    while True:
        if not fetch.is_ready():
            yield None
            continue
        block = fetch.read()
        if not block:
            return
        yield from archive.decode(block)
