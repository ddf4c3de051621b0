"""Plain loops over a reading: its records epoch after epoch, one by one or in batches, without TensorFlow."""

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
    """A loop over the records of a reading: how often, from where on, and in which batches.

    Attributes:
        seed: The seed of the order.
        epochs: The number of epochs; -1 for a loop without end.
        start_at: The number of the first record in the order of all epochs.
        batch: The number of records in a batch; None for single records.
        drop_remainder: Leave out a last batch that has fewer records.
    """

    seed: Seed
    epochs: int = 1
    start_at: int = 0
    batch: int | None = None
    drop_remainder: bool = False

    def records(self, reading: Reading, account: Account) -> Generator[Record]:
        """Return the records of a reading, each as it is read.

        Raises:
            OptionError: `start_at` is after the last record.
        """
        return self._read(reading, account, self.length(reading))

    def length(self, reading: Reading) -> int | None:
        """Return the number of records that the loop reads; None if it has no end, or the number is unknown.

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
        position = reading.begin(0, self.seed.value, self.epochs)
        if self.start_at:
            position = reading.seek(position, self.start_at, account)
        count = 0
        for count, record in enumerate(timed_records(reading.open(position, account), account), 1):  # noqa: B007
            yield record
        if promised is not None and count != promised:
            raise wrong_index(reading, promised, fewer=count < promised)

    def batched(self, records: Iterator[Record]) -> Iterator[Any]:
        """Return the records in batches, or as they are if no batches are asked for."""
        if self.batch is None:
            return records
        return in_batches(records, self.batch, drop_remainder=self.drop_remainder)


def wrong_index(reading: Reading, promised: int, *, fewer: bool) -> StoreError:
    """Return the error for an index that promised another number of records than there are."""
    return StoreError(
        f"the index says {promised:,} records, and there are {'fewer' if fewer else 'more'}; "
        "write it again by t2t.index(…)",
        url=reading.url,
    )


def in_batches(records: Iterator[Record], size: int, *, drop_remainder: bool) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of `size` records by field, in lists; None stands for a field that a record lacks.

    >>> list(in_batches(iter([{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]), 2, drop_remainder=False))
    [{'a': [1, 2], 'b': [None, 3]}, {'a': [4]}]
    """
    while batch := list(islice(records, size)):
        if len(batch) == size or not drop_remainder:
            names = dict.fromkeys(name for record in batch for name in record)
            yield {name: [record.get(name) for record in batch] for name in names}
