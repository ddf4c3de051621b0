"""Follows the batches of a training step back to the records of a dataset's shards. No Keras."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.tfdata.begin import Place, Trail
from ais_tar2tf.tfdata.counting import Counting
from ais_tar2tf.tfdata.staged import StagedDataset

__all__ = ["Follower"]


class Follower:
    """Says which record comes after the batches that were consumed, and lets a dataset begin there.

    Args:
        dataset: What the training step reads, or a dataset that this is made of.
        batch: The records in a batch, where the dataset given is batched elsewhere.
    """

    def __init__(self, dataset: StagedDataset, batch: int | None) -> None:
        self._dataset = dataset
        self._source = dataset.source
        self._elsewhere = batch is not None and batch != dataset.counting.records
        self.counting: Counting = dataset.counting
        if self._elsewhere:
            self.counting = replace(Counting.batches(batch), refused=dataset.counting.refused)
        self._trail: Trail | None = None
        self._reset()

    def _reset(self) -> None:
        self._run: int | None = None  # the number of the iterator that is consumed
        self._taken = 0  # elements of it, before tf.data regroups them
        self._begun = 0  # iterators that had begun before this epoch of Keras's
        self._undecided = True
        self._loops = self._source.begin.loops  # over the dataset, before fit's own

    @property
    def batch(self) -> int | None:
        """The records in a batch; None for a dataset of single records."""
        return self.counting.records if self.counting.batched else None

    @property
    def element_spec(self) -> Any:
        """What the training step takes, unless the dataset was batched elsewhere."""
        return self._dataset.element_spec

    @property
    def epochs(self) -> int:
        """The epochs of the shards in one iterator."""
        return max(1, self._source.request.repeat)

    @property
    def described(self) -> dict[str, Any]:
        """What the order of the records depends on, by name; the seed is not in it."""
        request = self._source.request
        repeat = "for ever" if request.repeat < 0 or self.counting.repeated else str(request.repeat)
        return {**request.reading.described, "start_at": request.start_at, "repeat": repeat}

    @property
    def seed(self) -> int:
        """The seed of the order."""
        request, begin = self._source.request, self._source.begin
        return request.seed.value if begin.seed is None or not request.seed.drawn else begin.seed

    def agree_on_seed(self, seed: int) -> bool:
        """Take over the seed of an earlier run in place of a drawn one; return whether both are now the same."""
        self._source.agree_on_seed(seed)
        return self.seed == seed

    def follow(self) -> None:
        """Note from now on what iterators pass."""
        self._trail = self._source.begin.trail = Trail()
        self._reset()

    def leave(self) -> None:
        """Note nothing more."""
        self._trail = self._source.begin.trail = None

    def begin_at(self, place: Place) -> None:
        """Let the next iterator begin at a place."""
        begin = self._source.begin
        begin.at, begin.onward = place, self.counting.repeated

    def epoch_begins(self) -> None:
        """Note that an epoch of Keras's begins, which may begin an iterator or continue the one before."""
        self._begun = 0 if self._trail is None else self._trail.begun
        self._undecided = True

    def consumed(self, batches: int) -> None:
        """Note that the training step has consumed so many batches more."""
        if self._trail is None:
            return
        if self._undecided:
            self._decide(self._trail)
        self._taken += batches * self.counting.regrouped

    def _decide(self, trail: Trail) -> None:
        """Find out which iterator the first batch of an epoch came from."""
        self._undecided = False
        first = self._run is None
        if trail.begun == self._begun and first:
            raise CheckpointError(
                "fit does not read the dataset that Resume was given; give Resume the same dataset as fit, or the "
                "one that it is made of"
            )
        if self.counting.repeated:
            self._run = self._begun if first else self._run
        elif first or trail.begun > self._begun or self.is_over():
            self._run, self._taken = trail.begun - 1, 0
            run = trail.run(self._run)
            assert run is not None
            self._source.begin.at = Place(run.begin.epoch + self.epochs)  # whatever begins before the next epoch

    def is_over(self) -> bool:
        """Return whether the iterator has given all its batches."""
        run = None if self._trail is None or self._run is None else self._trail.run(self._run)
        return run is not None and run.ended is not None and self._taken >= self.counting.elements(run.ended)

    def place(self, *, surplus: int = 0) -> Place:
        """Return the place after all batches that were consumed.

        Args:
            surplus: Batches by which Keras may have counted too many, at the end of an epoch.
        """
        assert self._trail is not None
        assert self._run is not None
        return self._place_repeated(self._trail) if self.counting.repeated else self._place(self._trail, surplus)

    def _place(self, trail: Trail, surplus: int) -> Place:
        assert self._run is not None
        run = trail.run(self._run)
        assert run is not None
        records = self._taken * self.counting.records
        if run.ended is None:
            return trail.place(self._run, records)
        if self._taken > self.counting.elements(run.ended) + surplus:
            raise CheckpointError(
                "fit reads the dataset that Resume was given through stages that Resume does not know, as .repeat() "
                "or .unbatch(); give Resume the same dataset as fit"
            )
        return trail.place(self._run, min(records, run.ended))

    def _place_repeated(self, trail: Trail) -> Place:
        """The place in the epoch that tf.data's `.repeat()` has come to; consumed epochs are passed over."""
        epoch = 0
        while True:
            assert self._run is not None
            run = trail.run(self._run)
            others = self._source.begin.loops > self._loops + 1
            if others or (run is not None and run.overlaps and self._run > 0):
                raise CheckpointError(
                    "another iterator of this dataset began while fit read it, so nobody knows which records fit has "
                    "consumed; give evaluation and other readers a dataset of their own"
                )
            if run is None:
                return Place(epoch)
            here = None if run.ended is None else self.counting.elements(run.ended)
            if here is None or self._taken < here:
                return trail.place(self._run, self._taken * self.counting.records_repeated)
            self._run, self._taken, epoch = self._run + 1, self._taken - here, run.begin.epoch + 1

    def has_next(self) -> bool:
        """Return whether the iterator that is consumed has another batch."""
        assert self._trail is not None
        assert self._run is not None
        return self._trail.reaches(self._run, lambda records: self.counting.elements(records) > self._taken)

    def has_batch(self, place: Place) -> bool:
        """Return whether an epoch has another batch after a place; the records of it are read, and not counted."""
        return self._source.has_records(place, self.counting.least)

    @property
    def endless(self) -> bool:
        """Whether one iterator goes on for ever, so that Keras never begins another one."""
        return self.counting.repeated or self._source.request.repeat < 0

    def check_steps(self, steps: int | None) -> None:
        """Refuse another number of batches in an epoch than the dataset has, as `fit` was told by `steps_per_epoch`.

        Keras then goes on with an iterator in the next epoch, and its own count of what is left in it is wrong for an
        iterator that began in the middle.
        """
        if steps is None or self.endless or (self._elsewhere and self._dataset.counting.groups):
            return
        batches = int(self._dataset.cardinality())
        size = self.counting.records if self._elsewhere else 1
        if batches < 0 or steps not in (batches // size, -(-batches // size)):
            has = f"has {batches:,}" if batches >= 0 else "does not know how many it has"
            raise OptionError(
                f"fit takes {steps:,} batches for an epoch, and the dataset that Resume was given {has}: give Resume "
                "the same dataset as fit, and with steps_per_epoch= one that does not end, by .repeat()"
            )
