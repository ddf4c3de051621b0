"""The progress of iterators: where the iterators of a dataset begin, and which positions they have reached.

No I/O, no TensorFlow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ais_tar2tf.base.forking import condition
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.streams.order.seeds import Seed

__all__ = ["EpochOffset", "IterationStart", "IteratorProgress", "ProgressLog"]

_KEPT_POSITIONS = 4_096  # of one iterator, at some 500 bytes each: more than the chunks in all prefetched batches
_PATIENCE = 60.0  # seconds to wait for the next chunk; the time limits of reading a chunk are shorter
_KEPT_ITERATORS = 256  # the latest: epochs may be short, so that several iterators are prefetched


@dataclass(frozen=True)
class EpochOffset:
    """A place in the order of a dataset, counted in records from the start of an epoch.

    Attributes:
        epoch: The epoch.
        records: The number of records of the epoch before the place.
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
    """The place where the next iterators of a dataset, and of every dataset derived from it, begin.

    Attributes:
        offset: The place where the next iterator begins; None while iterators count epochs by themselves.
        advances: Whether each iterator begins after the epochs of the previous iterator. If False, all iterators
            begin at `offset`.
        seed: The seed to use in place of a randomly chosen seed.
        log: Records the positions that iterators reach; None if they are not needed.
        loops: The number of calls of `iter` so far. One loop over tf.data's own `.repeat()` begins an iterator for
            each epoch.
    """

    offset: EpochOffset | None = None
    advances: bool = False
    seed: int | None = None
    log: ProgressLog | None = None
    loops: int = 0

    def next_offset(self, epochs: int) -> EpochOffset | None:
        """Return where the next iterator, over `epochs` epochs, begins; None if iterators count by themselves."""
        offset = self.offset
        if offset is not None and self.advances:
            self.offset = EpochOffset(offset.epoch + epochs)
        return offset

    def seed_for(self, seed: Seed) -> int:
        """Return the seed of an iterator of a dataset that was made with `seed`."""
        return seed.value if self.seed is None or not seed.drawn else self.seed


@dataclass
class IteratorProgress:
    """The progress of one iterator.

    Attributes:
        key: The number that the iterator's positions carry as `run`.
        begin: Where the iterator began.
        overlaps: Whether it began before the previous iterator had ended.
        records: The number of records emitted so far.
        ended: The total number of records; None before the end.
        failed: Whether the iterator raised an error. It then has no end.
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
        """Return the place after `records` records, and forget the positions before it."""
        passed = self.passed
        while len(passed) > 1 and passed[1][0] <= records:
            passed.popleft()
        position, skip = None, 0
        if passed and passed[0][0] <= records:
            position, skip = passed[0][1], records - passed[0][0]
        return EpochOffset(self.begin.epoch, self.begin.records + records, position, skip)


class ProgressLog:
    """The progress of a dataset's iterators, numbered from 0 in the order in which they began.

    TensorFlow's threads write the log, and are ahead of the training step by the prefetched batches. `Resume` asks
    for the place after the last record that the training step has consumed; earlier entries are then forgotten.
    """

    def __init__(self) -> None:
        self._changed = condition()
        self._iterators: deque[IteratorProgress] = deque(maxlen=_KEPT_ITERATORS)
        self._begun = 0

    @property
    def begun(self) -> int:
        """The number of iterators that have begun, which is also the number of the next one."""
        return self._begun

    def began(self, key: int, offset: EpochOffset) -> None:
        """Record that the iterator whose positions carry `key` begins at a place."""
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
        """Return the iterator with a key, if it is still in the log, and wake the threads that wait for a change."""
        self._changed.notify_all()
        return [each for each in self._iterators if each.key == key]

    def find(self, number: int) -> IteratorProgress | None:
        """Return an iterator by its number, and forget earlier ones; None if it has not begun."""
        with self._changed:
            while len(self._iterators) > self._begun - number:
                self._iterators.popleft()
            if number < self._begun - len(self._iterators):
                raise CheckpointError(
                    "too many iterators of this dataset began since the last batch, so it is unknown which records "
                    "were consumed; give evaluation and other readers a dataset of their own"
                )
            return self._iterators[0] if self._iterators else None

    def get(self, number: int) -> IteratorProgress:
        """Return an iterator that has begun, by its number, and forget earlier ones."""
        found = self.find(number)
        assert found is not None
        return found

    def reaches(self, number: int, enough: Callable[[int], bool]) -> bool:
        """Return whether an iterator emits enough records; `enough` is called with the number of records.

        Wait until the iterator has emitted them or has ended. It continues by itself when the prefetched batches have
        been consumed, and the training step would wait as long for its next batch. Return True if nothing happens
        within a minute.
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
