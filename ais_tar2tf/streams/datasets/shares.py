"""Streams of the records that belong to the share of one host.

If m hosts read the same stream, each host returns every m-th record of this stream. The number of records that a host
returns may also be bounded. `Plan` decides the share and the bound. This module must not change the order of records.
"""

from __future__ import annotations

from dataclasses import replace

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.records import Record, Records
from ais_tar2tf.streams.order import Plan, Position
from ais_tar2tf.streams.reader import ReadSession, RecordStream, Stream

__all__ = ["SharedStream", "open_stream"]


def open_stream(
    session: ReadSession, plan: Plan, position: Position, account: Account
) -> RecordStream | SharedStream:
    """Open the stream of the records that the host of `plan` returns, from `position` on."""
    plan.check(position)
    if plan.share == (0, 1) and plan.record_limit(position.epoch, position.seed) is None:
        return RecordStream(session, plan, position, account)
    return SharedStream(session, plan, position, account)


class SharedStream(Stream):
    """The records that one of m hosts returns if all m hosts read the same stream: record k of every m records.

    The host's pair (k, m) is `Plan.share`. A *round* is m consecutive records of the stream, one for each host. If
    `Plan.record_limit` sets a bound, the epoch of each host ends when the host has returned that many records.

    `Plan.last_round` decides about an incomplete round at the end of an epoch. If `last_round` is None, each host
    that has a record in this round returns it. Otherwise, a record is returned only when its round is complete. If
    `last_round` is "pad", an incomplete round is filled up: each host that has no record in this round returns an
    earlier record of the round. If `last_round` has another value, the incomplete round is dropped.
    """

    def __init__(self, session: ReadSession, plan: Plan, position: Position, account: Account) -> None:
        self._plan = plan
        self._turn, self._hosts = plan.share
        self._all = RecordStream(session, plan, position, account)
        self._position = position
        self._to_skip = position.skip  # records of `_all` to skip before the next record
        self._pending: list[Record] = []  # the records of an incomplete round, which begins at `_position`
        # The most records that this host returns in the epoch; None if there is no bound.
        self._most = plan.record_limit(position.epoch, position.seed)

    @property
    def position(self) -> Position:
        return self._position

    @property
    def closed(self) -> bool:
        return self._all.closed

    @property
    def chunk_bytes(self) -> int:
        return self._all.chunk_bytes

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        while self._to_skip:
            self._to_skip -= len(self._all.next_in_epoch(self._to_skip)) or self._to_skip
        while True:
            chunk, ended = self._next(most, full)
            if chunk:
                self._position = replace(self._position, count=self._position.count + len(chunk))
            if chunk or ended:
                return chunk

    def begin_next_epoch(self) -> bool:
        if not self._all.begin_next_epoch():
            return False
        self._position = replace(self._all.position, skip=0, read_for_all=0, count=self._position.count)
        self._most = self._plan.record_limit(self._position.epoch, self._position.seed)
        return True

    def close(self) -> None:
        self._all.close()

    def _next(self, most: int | None, full: bool) -> tuple[Records, bool]:
        """Return the next records of this host, and whether the epoch has ended. There may be no records."""
        left = None if self._most is None else max(0, self._most * self._hosts - self._position.read_for_all)
        if left == 0:
            self._verify_count()
            return Records(), True
        before = self._all.position
        chunk = self._all.next_in_epoch(None if most is None else most * self._hosts, full=full)
        if not chunk:
            return self._last_round(), True
        if left is not None:
            chunk = chunk[:left]
        if self._plan.last_round is not None:
            return self._complete_rounds(chunk, before), False
        read = self._position.read_for_all
        self._move_to(self._all.position, 0, len(chunk))
        return chunk[(self._turn - read) % self._hosts :: self._hosts], False

    def _verify_count(self) -> None:
        """Check the numbers of records in the index, which determine the bound.

        A lane checks the number of records of a shard at the end of the shard. The bound is the smallest number of
        records that any host has. A host with so few records reads its epoch to the end: few or no records follow.
        Other hosts check nothing here.
        """
        if self._plan.has_fewest(self._position.epoch, self._position.seed):
            while self._all.next_in_epoch():
                pass

    def _complete_rounds(self, chunk: Records, before: Position) -> Records:
        """Return this host's records of the rounds that `chunk` completes. `before` is the position of `chunk`."""
        self._pending += chunk
        done = len(self._pending) // self._hosts * self._hosts
        mine = self._pending[self._turn : done : self._hosts]
        del self._pending[:done]
        if not self._pending:
            self._move_to(self._all.position, 0, done)
        elif len(self._pending) <= len(chunk):
            self._move_to(before, len(chunk) - len(self._pending), done)
        else:
            self._move_to(self._position, self._position.skip + done, done)
        return Records(mine)

    def _last_round(self) -> Records:
        """Return this host's record of an incomplete last round if the round is padded; otherwise, no records."""
        pending, self._pending = self._pending, []
        self._move_to(self._all.position, 0, self._hosts if pending else 0)
        padded = pending and self._plan.last_round == "pad"
        return Records([pending[self._turn % len(pending)]] if padded else [])

    def _move_to(self, base: Position, skip: int, records: int) -> None:
        """Move the position to `skip` records after `base`, and add `records` to its count `read_for_all`."""
        at = self._position
        self._position = replace(base, skip=skip, read_for_all=at.read_for_all + records, count=at.count)
