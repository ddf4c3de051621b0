"""Plans the range requests of a reader that does not jump, as far as the read-ahead allows.

No I/O, no threads. Callers hold the lock of the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.fetch.range_requests import ShardDownload
from ais_tar2tf.fetch.ranges import ShardRange
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.stores import Store

__all__ = ["COMBINED_BYTES", "SequentialPlan"]

COMBINED_BYTES = 2 * MIB  # the most bytes in one combined request, because its answer is held in memory


class SequentialPlan:
    """Plans range after range of the shards, in their order."""

    def __init__(
        self, state: DownloadState, store: Store, shards: Iterator[ShardRange], read: Read, tuning: Tuning
    ) -> None:
        self._state = state
        self._store = store
        self._shards = shards
        self._read = read
        self._tuning = tuning
        self._is_exhausted = False
        self.failure: Exception | None = None  # the error that ended the iterator of shards

    def fill(self) -> None:
        """Plan ranges as long as the read-ahead has room for them."""
        while self.plan_ahead():
            pass

    def plan_ahead(self) -> bool:
        """Plan the next range if the read-ahead has room for it; return whether it was planned."""
        return self._state.may_plan_ahead and self.plan_next()

    def plan_next(self) -> bool:
        """Plan the next range; return False after the last one of the last shard."""
        if self._is_exhausted:
            return False
        shard = self._state.partly_planned or self._begin_shard()
        if shard is None:
            self._is_exhausted = True
            return False
        stop = self._stop_of_next(shard)
        self._state.plan(shard, stop, may_be_combined=_is_small(shard, stop))
        return True

    def _begin_shard(self) -> ShardDownload | None:
        try:
            wanted = next(self._shards, None)
        except Exception as error:  # noqa: BLE001  # raised by the reader later, as a worker may be planning
            self.failure, wanted = error, None
        if wanted is None:
            return None
        lacks_validator = bool(wanted.identity.fingerprint) and not wanted.identity.is_strong
        size = self._known_size(wanted)
        may_jump = size is None and self._takes_ranges(wanted, lacks_validator)
        return ShardDownload(
            wanted,
            self._store.url(wanted.name),
            wanted.identity,
            size,
            lacks_validator,
            window_bytes=self._state.next_window_bytes if may_jump else 0,
            planned_to=wanted.start,
        )

    def _known_size(self, wanted: ShardRange) -> int | None:
        """Return the size that an index states, if few bytes are wanted. The next shard can then be planned, too."""
        size = wanted.identity.size
        if size is None or wanted.stop is None or wanted.stop > size:
            return None
        return size if wanted.stop - wanted.start <= self._read.range_bytes else None

    def _takes_ranges(self, wanted: ShardRange, lacks_validator: bool) -> bool:
        return self._over_connections(lacks_validator) or wanted.stop is not None

    def _over_connections(self, lacks_validator: bool) -> bool:
        """Return whether several requests may download the shard. Without a validator, their content might differ."""
        return self._read.connections > 1 and not (lacks_validator or self._state.last_lacks_validator)

    def _stop_of_next(self, shard: ShardDownload) -> int | None:
        """Return the end of the next range of the shard; None for the shard's end."""
        if not self._takes_ranges(shard.wanted, shard.lacks_validator):
            return None
        stops = [shard.wanted.stop, shard.end]
        if self._over_connections(shard.lacks_validator):
            stops.append(shard.planned_to + self._tuning.range_bytes)
        if shard.window_bytes:
            stops.append(shard.planned_to + shard.window_bytes)
        return min((stop for stop in stops if stop is not None), default=None)


def _is_small(shard: ShardDownload, stop: int | None) -> bool:
    """Return whether the next range, up to `stop`, is small and the only range that is wanted of a shard."""
    start = shard.planned_to
    if shard.size is None or stop is None or start != shard.wanted.start or stop != shard.wanted.stop:
        return False
    return 0 < stop - start <= COMBINED_BYTES // 2
