"""The stream of the records of a plan. It opens the lanes of each epoch, and returns records in the plan's order.

The plan decides the order, and lanes read the shards. This module must do neither by itself.
"""

from __future__ import annotations

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import StoreError
from ais_tar2tf.records import Records
from ais_tar2tf.stores import Identity
from ais_tar2tf.streams.order import Plan, Position
from ais_tar2tf.streams.reader.base import Stream
from ais_tar2tf.streams.reader.lane import Lane
from ais_tar2tf.streams.reader.sessions import ReadSession

__all__ = ["RecordStream"]


class RecordStream(Stream):
    """The open stream of a plan.

    If several hosts take turns at the records of one stream, the stream returns the records of all these hosts. Its
    user keeps only the records of this host.
    """

    def __init__(self, session: ReadSession, plan: Plan, position: Position, account: Account) -> None:
        read = session.shards.read
        lanes = len(position.marks)
        self._url = session.shards.store.url("")
        self._limits = read.limits
        self._session = session.among(read.of_lane(lanes), lanes) if lanes > 1 else session
        self._plan = plan
        self._account = account
        self._reader = plan.strategy.reader(plan.stream)
        self._lanes: list[Lane] = []
        self._closed = False
        session.add(self)
        self._open_lanes(position)

    @property
    def position(self) -> Position:
        return self._reader.position

    @property
    def chunk_bytes(self) -> int:
        return self._session.tuning.chunk_bytes

    @property
    def identity(self) -> Identity:
        """The identity of the shard from which the last records came. The stream must have only one lane."""
        return self._lanes[0].last_shard.identity

    @property
    def closed(self) -> bool:
        return self._closed

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        if self._closed:
            raise StoreError("these shards were closed while they were read", url=self._url)
        most = min(most or self._limits.chunk_records, self._limits.chunk_records)
        return self._reader.next_records(most, self.chunk_bytes, full=full)

    def begin_next_epoch(self) -> bool:
        position = self._plan.next_epoch(self.position)
        if position is None:
            return False
        self._close_lanes()
        self._open_lanes(position)
        return True

    def read_ahead(self) -> None:
        """Open the first shard of each lane, so that its bytes arrive before they are needed."""
        for lane in self._lanes:
            lane.read_ahead()

    def close(self, *, grace: float = 0.0) -> None:
        """Close all lanes. `grace` is passed to `Fetcher.close`."""
        self._closed = True
        self._close_lanes(grace)

    def _open_lanes(self, position: Position) -> None:
        order = self._plan.order(position.epoch, position.seed)
        step = len(position.marks)
        self._lanes = [Lane(self._session, order, step, mark, self._account) for mark in position.marks]
        self._reader.start(self._lanes, position)

    def _close_lanes(self, grace: float = 0.0) -> None:
        for lane in self._lanes:
            lane.close(grace=grace)
        self._lanes = []
        self._reader.clear()
