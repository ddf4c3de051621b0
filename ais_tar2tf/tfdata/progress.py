"""The progress of iterators: where the iterators of a dataset begin, and which positions they have reached.

The callback `Resume` uses this progress. This module must not do I/O, nor import TensorFlow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ais_tar2tf.base.forking import condition
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.streams.order.seeds import Seed

__all__ = ["EpochOffset", "IterationStart", "IteratorProgress", "ProgressLog"]

_KEPT_POSITIONS = 4_096  # of each iterator, some 500 bytes each; prefetched batches have fewer chunks than that
_PATIENCE = 60.0  # seconds to wait for the next chunk; reading a chunk has shorter time limits
_KEPT_ITERATORS = 256  # the latest iterators; if epochs are short, several iterators are prefetched


@dataclass(frozen=True)
class EpochOffset:
    """A place in the order of a dataset, counted in records from the start of an epoch.

    Attributes:
        epoch: The number of the epoch.
        records: The number of records between the start of the epoch and the place.
        position: The text of a position shortly before the place, where a stream can be opened at once. If None, the
            place is found by an index or by reading.
        skip: The number of records between `position` and the place.
    """

    epoch: int
    records: int = 0
    position: str | None = None
    skip: int = 0


@dataclass
class IterationStart:
    """The place where the next iterator of a dataset, or of any dataset derived from that dataset, begins.

    Attributes:
        offset: The place where the next iterator begins. If None, the next iterator begins after the epochs of all
            earlier iterators.
        advances: Whether `offset` moves to the next epochs when an iterator begins. If False, all iterators begin at
            the same place.
        seed: The seed to use in place of a randomly chosen seed.
        log: Records the positions that iterators reach; None if nobody needs the positions.
        loops: The number of calls of `iter` so far. A call of `iter` creates several iterators if the dataset is
            repeated by tf.data's own `.repeat()`: one iterator for each epoch.
    """

    offset: EpochOffset | None = None
    advances: bool = False
    seed: int | None = None
    log: ProgressLog | None = None
    loops: int = 0

    def next_offset(self, epochs: int) -> EpochOffset | None:
        """Return `offset` for an iterator that begins now. If `advances` is true, move `offset` by `epochs`."""
        offset = self.offset
        if offset is not None and self.advances:
            self.offset = EpochOffset(offset.epoch + epochs)
        return offset

    def seed_for(self, seed: Seed) -> int:
        """Return the seed of an iterator: the seed of its dataset, or `self.seed` if the dataset's seed was drawn."""
        return seed.value if self.seed is None or not seed.drawn else self.seed


@dataclass
class IteratorProgress:
    """The progress of one iterator.

    Attributes:
        key: The number that the iterator's positions carry as `run`.
        begin: Where the iterator began.
        overlaps: Whether the iterator began before the previous iterator had ended.
        records: The number of records emitted so far.
        ended: The total number of records; None before the end.
        failed: Whether the iterator raised an error. A failed iterator has no end.
        passed: The latest positions, each with the number of records emitted before it.
    """

    key: int
    begin: EpochOffset
    overlaps: bool
    records: int = 0
    ended: int | None = None
    failed: bool = False
    passed: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_KEPT_POSITIONS))

    def offset_after(self, records: int) -> EpochOffset:
        """Return the place after `records` records, and forget the positions that no later place needs."""
        passed = self.passed
        while len(passed) > 1 and passed[1][0] <= records:
            passed.popleft()
        position, skip = None, 0
        if passed and passed[0][0] <= records:
            position, skip = passed[0][1], records - passed[0][0]
        return EpochOffset(self.begin.epoch, self.begin.records + records, position, skip)


class ProgressLog:
    """The progress of a dataset's iterators, numbered from 0 in the order in which they began.

    TensorFlow's threads write the log. They are ahead of the training step by the prefetched batches. `Resume` asks
    the log for the place after the last record that the training step has consumed. The log then forgets all earlier
    entries.
    """

    def __init__(self) -> None:
        self._changed = condition()
        self._iterators: deque[IteratorProgress] = deque(maxlen=_KEPT_ITERATORS)
        self._begun = 0

    @property
    def begun(self) -> int:
        """How many iterators have begun. This is also the number of the next iterator."""
        return self._begun

    def began(self, key: int, offset: EpochOffset) -> None:
        """Record that an iterator, whose positions carry `key`, begins at the place `offset`."""
        with self._changed:
            overlaps = bool(self._iterators) and self._iterators[-1].ended is None
            self._iterators.append(IteratorProgress(key, offset, overlaps))
            self._begun += 1

    def passed(self, key: int, records: int, position: str) -> None:
        """Record that an iterator has emitted `records` records, and has reached a position."""
        with self._changed:
            for each in self._with_key(key):
                each.records = records
                each.passed.append((records, position))

    def ended(self, key: int, records: int) -> None:
        """Record that an iterator has ended after `records` records."""
        with self._changed:
            for each in self._with_key(key):
                each.ended = records

    def failed(self, key: int) -> None:
        """Record that an iterator raised an error."""
        with self._changed:
            for each in self._with_key(key):
                each.failed = True

    def _with_key(self, key: int) -> list[IteratorProgress]:
        """Return a list of the iterator with a key, empty if the log has forgotten it. Wake all waiting threads.

        The caller holds the lock, and changes the iterator before it releases the lock.
        """
        self._changed.notify_all()
        return [each for each in self._iterators if each.key == key]

    def find(self, number: int) -> IteratorProgress | None:
        """Return an iterator by its number, and forget earlier iterators; None if the iterator has not begun.

        Raises:
            CheckpointError: The log has forgotten the iterator, because too many others began after it.
        """
        with self._changed:
            while len(self._iterators) > max(0, self._begun - number):
                self._iterators.popleft()
            if number < self._begun - len(self._iterators):
                raise CheckpointError(
                    "too many iterators of this dataset began since the last batch, so it is unknown which records "
                    "were consumed; give evaluation and other readers a dataset of their own"
                )
            return self._iterators[0] if self._iterators else None

    def get(self, number: int) -> IteratorProgress:
        """Return an iterator that has begun, by its number, and forget earlier iterators."""
        found = self.find(number)
        assert found is not None
        return found

    def reaches(self, number: int, enough: Callable[[int], bool]) -> bool:
        """Return False if an iterator ends before it emits enough records, and True otherwise.

        Wait until the iterator has emitted enough records, has ended or has failed, but at most `_PATIENCE` seconds.
        The training step would wait as long for its next batch, so the wait costs no time. If the time
        runs out, or the iterator fails, the result is True.

        Args:
            number: The number of the iterator.
            enough: Returns whether a number of records is enough.
        """
        found = self.get(number)
        with self._changed:
            self._changed.wait_for(
                lambda: enough(found.records) or found.ended is not None or found.failed, _PATIENCE
            )
            return found.ended is None or enough(found.ended)

    def offset_after(self, number: int, records: int) -> EpochOffset:
        """Return the place after `records` records of an iterator that has begun."""
        found = self.get(number)
        with self._changed:
            return found.offset_after(records)
