"""Loops in plain Python over the records of a reading: epoch after epoch, one by one or in batches.

A *reading* describes the records of a source or of a mixture (`reading.py`). This module must not use TensorFlow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import StoreError
from ais_tar2tf.records import Record
from ais_tar2tf.streams.datasets.reading import Reading, timed_records
from ais_tar2tf.streams.order import start_after_end
from ais_tar2tf.streams.order.seeds import Seed

__all__ = ["RecordLoop", "in_batches", "wrong_index"]


@dataclass(frozen=True, kw_only=True)
class RecordLoop:
    """A description of a loop over a reading: how many epochs, from which record on, and in which batches.

    Attributes:
        seed: The seed of the order.
        epochs: The number of epochs; -1 for a loop without end.
        start_at: The number of the first record, counted from 0 at the start of the first epoch.
        batch: The number of records in a batch; None for single records.
        drop_remainder: Whether the last batch is left out if it has fewer than `batch` records.
    """

    seed: Seed
    epochs: int = 1
    start_at: int = 0
    batch: int | None = None
    drop_remainder: bool = False

    def records(self, reading: Reading, account: Account) -> Generator[Record]:
        """Return an iterator over the records of a reading. A record is read when the iterator needs it.

        Raises:
            OptionError: `start_at` is after the last record.
        """
        return self._read(reading, account, self.length(reading))

    def length(self, reading: Reading) -> int | None:
        """Return the number of records that the loop reads; None if the loop has no end, or the number is unknown.

        Raises:
            OptionError: `start_at` is after the last record.
        """
        in_epoch = reading.length(self.seed.value)
        if in_epoch is None or self.epochs < 0:
            return None
        if self.epochs * in_epoch < self.start_at:
            raise start_after_end(self.start_at, self.epochs * in_epoch)
        return self.epochs * in_epoch - self.start_at

    def _read(self, reading: Reading, account: Account, promised: int | None) -> Generator[Record]:
        """Yield the records. At the end, raise StoreError if their number is not `promised`, unless this is None."""
        position = reading.begin(0, self.seed.value, self.epochs)
        if self.start_at:
            position = reading.seek(position, self.start_at, account)
        count = 0
        for count, record in enumerate(timed_records(reading.open(position, account), account), 1):  # noqa: B007
            yield record
        if promised is not None and count != promised:
            raise wrong_index(reading, self.seed.value, fewer=count < promised)

    def batched(self, records: Iterator[Record]) -> Iterator[Any]:
        """Return the records in batches of `batch` records, or unchanged if `batch` is None."""
        if self.batch is None:
            return records
        return in_batches(records, self.batch, drop_remainder=self.drop_remainder)


def wrong_index(reading: Reading, seed: int, *, fewer: bool) -> StoreError:
    """Return the error for an index that states another number of records than the shards have.

    Args:
        reading: The reading, whose number of records in an epoch is known from the index.
        seed: The seed of its order.
        fewer: Whether fewer records were read; otherwise there are more.
    """
    return StoreError(
        f"the index says {reading.length(seed):,} records, and there are {'fewer' if fewer else 'more'}; "
        "write it again by t2t.index(…)",
        url=reading.url,
    )


def in_batches(records: Iterator[Record], size: int, *, drop_remainder: bool) -> Iterator[dict[str, list[Any]]]:
    """Yield batches of `size` records, as dicts of lists by field. None stands for a field that a record lacks.

    >>> list(in_batches(iter([{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]), 2, drop_remainder=False))
    [{'a': [1, 2], 'b': [None, 3]}, {'a': [4]}]
    """
    while batch := list(islice(records, size)):
        if len(batch) == size or not drop_remainder:
            names = dict.fromkeys(name for record in batch for name in record)
            yield {name: [record.get(name) for record in batch] for name in names}
