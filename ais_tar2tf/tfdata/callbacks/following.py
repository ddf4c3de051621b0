"""`Follower`: computes the next record from the number of batches that a training has consumed. No Keras."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.tfdata.counting import Counting
from ais_tar2tf.tfdata.derived import DerivedDataset
from ais_tar2tf.tfdata.progress import EpochOffset, ProgressLog

__all__ = ["Follower"]


class Follower:
    """Finds the record that comes after the batches that the training has consumed.

    Prefetching iterators read ahead of the training step, and Keras does not say which iterator a batch comes from.
    The follower finds the iterator by comparing the dataset's `ProgressLog` before and after the first batch of an
    epoch.

    Args:
        dataset: The dataset that the training step reads, or a dataset from which that one was derived.
        batch: The number of records in a batch, if a dataset derived from `dataset` makes the batches; else None.
    """

    def __init__(self, dataset: DerivedDataset, batch: int | None) -> None:
        self._dataset = dataset
        self._source = dataset.source
        self._batched_later = batch is not None and batch != dataset.counting.records
        self.counting: Counting = dataset.counting
        if self._batched_later:
            self.counting = replace(Counting.batches(batch), refused=dataset.counting.refused)
        self._progress: ProgressLog | None = None
        self._reset()

    def _reset(self) -> None:
        self._iterator: int | None = None  # the number of the iterator from which batches are consumed
        self._consumed = 0  # elements consumed from it; with `.repeat()`, elements of the dataset before it
        self._begun_before = 0  # the number of iterators that began before this epoch of Keras
        self._epoch_is_new = True  # no batch of this epoch of Keras has been consumed
        self._loops_before = self._source.start.loops  # the number of loops over the dataset that began before fit

    @property
    def batch(self) -> int | None:
        """The number of records in a batch; None for a dataset of single records."""
        return self.counting.records if self.counting.is_batched else None

    @property
    def element_spec(self) -> Any:
        """The types and shapes of the dataset's elements, which need not be batches yet."""
        return self._dataset.element_spec

    @property
    def epochs(self) -> int:
        """The number of epochs of the records that one iterator reads."""
        return max(1, self._source.request.loop.epochs)

    @property
    def described(self) -> dict[str, Any]:
        """The options on which the order of records depends, by name. The seed is not among them."""
        request = self._source.request
        repeat = "for ever" if request.loop.epochs < 0 or self.counting.repeated else str(request.loop.epochs)
        return {**request.reading.described, "start_at": request.loop.start_at, "repeat": repeat}

    @property
    def seed(self) -> int:
        """The seed of the order of records."""
        return self._source.start.seed_for(self._source.request.loop.seed)

    def agree_on_seed(self, seed: int) -> bool:
        """Replace a drawn seed by the seed of an earlier run. Return whether both seeds are now equal."""
        self._source.agree_on_seed(seed)
        return self.seed == seed

    def follow(self) -> None:
        """Start logging the progress of iterators."""
        self._progress = self._source.start.log = ProgressLog()
        self._reset()

    def leave(self) -> None:
        """Stop logging the progress of iterators."""
        self._progress = self._source.start.log = None

    def begin_at(self, offset: EpochOffset) -> None:
        """Make the next iterator begin at a place."""
        start = self._source.start
        start.offset, start.advances = offset, self.counting.repeated

    def epoch_begins(self) -> None:
        """Record that Keras begins an epoch. Keras may create an iterator, or continue with the previous one."""
        self._begun_before = 0 if self._progress is None else self._progress.begun
        self._epoch_is_new = True

    def consumed(self, batches: int) -> None:
        """Record that the training step has consumed `batches` more batches."""
        if self._progress is None:
            return
        if self._epoch_is_new:
            self._find_iterator(self._progress)
        self._consumed += batches * self.counting.repeated_elements

    def _find_iterator(self, progress: ProgressLog) -> None:
        """Find the iterator from which the first batch of an epoch comes."""
        self._epoch_is_new = False
        is_first = self._iterator is None
        if progress.begun == self._begun_before and is_first:
            raise CheckpointError(
                "fit does not read the dataset that Resume was given; give Resume the same dataset as fit, or the "
                "one that it is made of"
            )
        if self.counting.repeated:
            self._iterator = self._begun_before if is_first else self._iterator
        elif is_first or progress.begun > self._begun_before or self._is_over(progress):
            self._iterator, self._consumed = progress.begun - 1, 0
            begin = progress.get(self._iterator).begin
            # Iterators that others create meanwhile, such as an evaluation, begin at the following epoch.
            self._source.start.offset = EpochOffset(begin.epoch + self.epochs)

    def _is_over(self, progress: ProgressLog) -> bool:
        """Return whether all batches of the current iterator were consumed."""
        iterator = None if self._iterator is None else progress.find(self._iterator)
        ended = None if iterator is None else iterator.ended
        return ended is not None and self._consumed >= self.counting.elements(ended)

    def offset(self, *, surplus: int = 0) -> EpochOffset:
        """Return the place of the record after all consumed batches.

        Args:
            surplus: The number of batches by which Keras's count at the end of an epoch may be too large.
        """
        assert self._progress is not None
        assert self._iterator is not None
        if self.counting.repeated:
            return self._offset_in_repeated(self._progress, self._iterator)
        ended = self._progress.get(self._iterator).ended
        records = self._consumed * self.counting.records
        if ended is None:
            return self._progress.offset_after(self._iterator, records)
        if self._consumed > self.counting.elements(ended) + surplus:
            raise CheckpointError(
                "fit reads the dataset that Resume was given through stages that Resume does not know, as .repeat() "
                "or .unbatch(); give Resume the same dataset as fit"
            )
        return self._progress.offset_after(self._iterator, min(records, ended))

    def _offset_in_repeated(self, progress: ProgressLog, number: int) -> EpochOffset:
        """Return the place in a dataset that tf.data's `.repeat()` repeats, which has an iterator for each epoch.

        Skip consumed iterators.
        """
        epoch = 0
        while True:
            iterator = progress.find(number)
            other_loops = self._source.start.loops > self._loops_before + 1
            if other_loops or (iterator is not None and iterator.overlaps and number > 0):
                raise CheckpointError(
                    "another iterator of this dataset began while fit read it, so nobody knows which records fit has "
                    "consumed; give evaluation and other readers a dataset of their own"
                )
            if iterator is None:
                return EpochOffset(epoch)
            elements = None if iterator.ended is None else self.counting.elements(iterator.ended)
            if elements is None or self._consumed < elements:
                return progress.offset_after(number, self._consumed * self.counting.records_before_repeat)
            number, epoch = number + 1, iterator.begin.epoch + 1
            self._iterator, self._consumed = number, self._consumed - elements

    def has_next(self) -> bool:
        """Return whether the current iterator has another batch."""
        assert self._progress is not None
        assert self._iterator is not None
        return self._progress.reaches(
            self._iterator, lambda records: self.counting.elements(records) > self._consumed
        )

    def has_batch(self, offset: EpochOffset) -> bool:
        """Return whether an epoch has another batch after a place. Records that this reads are not counted."""
        return self._source.has_records(offset, self.counting.min_records)

    @property
    def endless(self) -> bool:
        """Whether an iterator never ends, so that Keras never creates another one."""
        return self.counting.repeated or self._source.request.loop.epochs < 0

    def check_steps(self, steps: int | None) -> None:
        """Refuse `fit(steps_per_epoch=)` that is not the dataset's number of batches.

        Keras would continue an iterator in the next epoch. For an iterator that began in the middle of an epoch,
        Keras would then count the remaining batches wrongly.
        """
        if steps is None or self.endless or (self._batched_later and self._dataset.counting.groups):
            return
        batches = int(self._dataset.cardinality())
        size = self.counting.records if self._batched_later else 1
        if batches < 0 or steps not in (batches // size, -(-batches // size)):
            has = f"has {batches:,}" if batches >= 0 else "does not know how many it has"
            raise OptionError(
                f"fit takes {steps:,} batches for an epoch, and the dataset that Resume was given {has}: give Resume "
                "the same dataset as fit; to use steps_per_epoch=, make that dataset endless by .repeat()"
            )
