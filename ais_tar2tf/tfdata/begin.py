"""Where the iterators of a dataset begin, and which positions they passed. No I/O, no TensorFlow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.forking import condition

__all__ = ["Begin", "Place", "Run", "Trail"]

_KEPT_POSITIONS = 4_096  # of one iterator: more than prefetched batches hold chunks, at some 500 bytes each
_PATIENCE = 60.0  # seconds for the next chunk of records, whose own time limits are shorter
_KEPT_RUNS = 256  # iterators that began and were not asked about: epochs of few records, prefetched


@dataclass(frozen=True)
class Place:
    """A place in the order of a dataset: `records` records after the start of an epoch.

    `position`, if given, is the text of the position `skip` records before the place: a stream opens there at once,
    where otherwise it has to find the record by an index or by reading.
    """

    epoch: int
    records: int = 0
    position: str | None = None
    skip: int = 0


@dataclass
class Begin:
    """Where the next iterators of a dataset begin; the dataset and every dataset made of it share one.

    Attributes:
        at: The place; None when iterators count epochs by themselves.
        onward: Only the next iterator begins at the place, each later one an epoch later. Otherwise all of them do.
        seed: The seed to use in place of a drawn one.
        trail: Notes the positions that iterators pass; None while nobody asks for them.
        loops: How many loops over the dataset have begun, each by `iter`. One loop over tf.data's own `.repeat()`
            begins an iterator for each epoch.
    """

    at: Place | None = None
    onward: bool = False
    seed: int | None = None
    trail: Trail | None = None
    loops: int = 0

    def next_place(self, epochs: int) -> Place | None:
        """Return where an iterator over so many epochs begins."""
        place = self.at
        if place is not None and self.onward:
            self.at = Place(place.epoch + epochs)
        return place


@dataclass
class Run:
    """One iterator: where it began, and the latest positions that it passed, with the records handed out by then."""

    key: int  # what its positions carry as `run`
    begin: Place
    overlaps: bool  # it began while the iterator before it was not at its end
    records: int = 0  # that it handed out so far
    ended: int | None = None  # records that it handed out in all
    failed: bool = False  # its end will not be known
    passed: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_KEPT_POSITIONS))

    def place(self, records: int) -> Place:
        """Return the place after so many records, and forget the positions before it."""
        passed = self.passed
        while len(passed) > 1 and passed[1][0] <= records:
            passed.popleft()
        position, skip = None, 0
        if passed and passed[0][0] <= records:
            position, skip = passed[0][1], records - passed[0][0]
        return Place(self.begin.epoch, self.begin.records + records, position, skip)


class Trail:
    """The iterators of a dataset in the order in which they began, by number from 0 on.

    TensorFlow's threads write it, ahead of the training step by what is prefetched. The training step asks for the
    place of the last record that it consumed, and each question forgets what lies before that place.
    """

    def __init__(self) -> None:
        self._changed = condition()
        self._runs: deque[Run] = deque(maxlen=_KEPT_RUNS)
        self._begun = 0

    @property
    def begun(self) -> int:
        """Return how many iterators have begun; the number of the latest is one less."""
        return self._begun

    def began(self, key: int, place: Place) -> None:
        """Note that the iterator whose positions carry `key` begins at a place."""
        with self._changed:
            overlaps = bool(self._runs) and self._runs[-1].ended is None
            self._runs.append(Run(key, place, overlaps))
            self._begun += 1

    def passed(self, key: int, records: int, position: str) -> None:
        """Note that an iterator has handed out so many records, and stands at a position."""
        with self._changed:
            for run in self._of(key):
                run.records = records
                run.passed.append((records, position))

    def ended(self, key: int, records: int) -> None:
        """Note that an iterator came to its end."""
        with self._changed:
            for run in self._of(key):
                run.ended = records

    def failed(self, key: int) -> None:
        """Note that an iterator raised an error."""
        with self._changed:
            for run in self._of(key):
                run.failed = True

    def _of(self, key: int) -> list[Run]:
        """The iterator whose positions carry `key`, if it is still known; whoever waits for news of it is woken."""
        self._changed.notify_all()
        return [run for run in self._runs if run.key == key]

    def run(self, number: int) -> Run | None:
        """Return an iterator by its number, and forget earlier ones; None when it has not begun."""
        with self._changed:
            while len(self._runs) > self._begun - number:
                self._runs.popleft()
            if number < self._begun - len(self._runs):
                raise CheckpointError(
                    "too many iterators of this dataset began since the last batch, so nobody knows which records "
                    "were consumed; give whatever else reads it a dataset of its own"
                )
            return self._runs[0] if self._runs else None

    def reaches(self, number: int, enough: Callable[[int], bool]) -> bool:
        """Return whether an iterator hands out `enough` records, a number that it was not seen to hand out yet.

        tf.data reads on by itself when everything was consumed, so that this waits only as long as the next batch
        would let the training step wait. Where tf.data is told to do nothing by itself, the answer is yes.
        """
        run = self.run(number)
        assert run is not None
        with self._changed:
            self._changed.wait_for(lambda: enough(run.records) or run.ended is not None or run.failed, _PATIENCE)
            return run.ended is None or enough(run.ended)

    def place(self, number: int, records: int) -> Place:
        """Return the place after so many records of an iterator that has begun."""
        run = self.run(number)
        assert run is not None
        with self._changed:
            return run.place(records)
