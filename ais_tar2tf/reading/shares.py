"""What one host gets of a stream of records that several hosts read alike: its turns, or no more than others have."""

from __future__ import annotations

from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.plan import Plan, Position
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.reader.epochs import EpochStream
from ais_tar2tf.records import Record, Records

__all__ = ["SharedStream", "open_stream"]


def open_stream(shards: Shards, plan: Plan, position: Position, account: Account) -> RecordStream | SharedStream:
    """The records of a plan for its host, from a position on."""
    plan.check(position)
    if plan.share == (0, 1) and plan.most(position.epoch, position.seed) is None:
        return RecordStream(shards, plan, position, account)
    return SharedStream(shards, plan, position, account)


class SharedStream(EpochStream):
    """The k-th of every m records, and no more than the plan allows in an epoch.

    Where no counts are known and all hosts are to get equally many, a record is handed out when its round of m is
    whole; the last round of an epoch is then dropped, or padded: hosts without a turn get one of its records again.
    """

    def __init__(self, shards: Shards, plan: Plan, position: Position, account: Account) -> None:
        self._plan = plan
        self._turn, self._round = plan.share
        self._raw = RecordStream(shards, plan, position, account)
        self._to_pass = position.skip
        self._pending: list[Record] = []  # of the round that is not whole
        self._base = position  # of the stream, from which `_base_skip` records on the pending ones come
        self._base_skip = position.skip
        self.position: Position = position
        self._most = plan.most(position.epoch, position.seed)

    @property
    def closed(self) -> bool:
        return self._raw.closed

    @property
    def chunk_bytes(self) -> int:
        return self._raw.chunk_bytes

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        while True:
            self._pass_over()
            count = self.position.count
            chunk, ended = self._next(most, full)
            if chunk:
                self.position = replace(self.position, count=count + len(chunk))
            if chunk or ended:
                return chunk

    def begin_next_epoch(self) -> bool:
        if not self._raw.begin_next_epoch():
            return False
        self.position = replace(self._raw.position, skip=0, number=0, count=self.position.count)
        self._most = self._plan.most(self.position.epoch, self.position.seed)
        return True

    def close(self) -> None:
        self._raw.close()

    def _pass_over(self) -> None:
        while self._to_pass:
            passed = self._raw.next_in_epoch(self._to_pass)
            self._to_pass = self._to_pass - len(passed) if passed else 0
            self._base, self._base_skip = self._raw.position, self._to_pass

    def _next(self, most: int | None, full: bool) -> tuple[Records, bool]:
        """Some records of this host, and whether the epoch is at its end."""
        left = self._left()
        if left == 0:
            self._end_alike()
            return Records(), True
        before = self._raw.position
        chunk = self._raw.next_in_epoch(None if most is None else most * self._round, full=full)
        if not chunk:
            return self._end_of_epoch(), True
        if left is not None:
            chunk = chunk[:left]
        if self._plan.last_round is None:
            number = self.position.number
            self._move_to(self._raw.position, 0, number + len(chunk))
            return chunk[(self._turn - number) % self._round :: self._round], False
        return self._whole_rounds(chunk, before), False

    def _end_alike(self) -> None:
        """Read the rest of the epoch where this host is to have no more records than it hands out.

        An index that counts too few records in its shard is found at the shard's end.
        """
        if self._plan.has_most(self.position.epoch, self.position.seed):
            while self._raw.next_in_epoch():
                pass

    def _left(self) -> int | None:
        """Records of the stream, before the epoch is over for all hosts."""
        return None if self._most is None else max(0, self._most * self._round - self.position.number)

    def _whole_rounds(self, chunk: Records, before: Position) -> Records:
        if not self._pending:
            self._base, self._base_skip = before, 0
        self._pending += chunk
        done = len(self._pending) // self._round * self._round
        mine = self._pending[self._turn : done : self._round]
        del self._pending[:done]
        if len(self._pending) <= len(chunk):
            self._base, self._base_skip = before, len(chunk) - len(self._pending)
        else:
            self._base_skip += done
        if not self._pending:
            self._base, self._base_skip = self._raw.position, 0
        self._move_to(self._base, self._base_skip, self.position.number + done)
        return Records(mine)

    def _end_of_epoch(self) -> Records:
        pending, self._pending = self._pending, []
        number = self.position.number + (self._round if pending else 0)
        self._move_to(self._raw.position, 0, number)
        return Records([pending[self._turn % len(pending)]] if pending and self._plan.last_round == "pad" else [])

    def _move_to(self, base: Position, skip: int, number: int) -> None:
        self.position = replace(base, skip=skip, number=number, count=self.position.count)
