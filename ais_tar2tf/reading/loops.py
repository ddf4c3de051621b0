"""Plain loops over a reading: its records epoch after epoch, one by one or in batches, without TensorFlow."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.errors import StoreError
from ais_tar2tf.plan.seeds import Seed
from ais_tar2tf.reading import Reading, behind_the_end, timed_records
from ais_tar2tf.records import Record

__all__ = ["Loop", "in_batches", "wrong_index"]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Which records of a reading come, in the order that a dataset with these options has.

    Attributes:
        seed: Of the order.
        epochs: How often the reading is read; -1 for ever.
        start_at: The number of the first record in the order of all epochs.
    """

    seed: Seed
    epochs: int = 1
    start_at: int = 0

    def records(self, reading: Reading, account: Account) -> Generator[Record]:
        """Return the records, each as it is read.

        Raises:
            OptionError: `start_at` lies behind the end.
        """
        each = reading.length(self.seed.value)
        promised = None if each is None or self.epochs < 0 else self.epochs * each - self.start_at
        if promised is not None and promised < 0:
            raise behind_the_end(self.start_at, promised + self.start_at)
        begin = reading.begin(0, self.seed.value, self.epochs)
        return self._read(reading, begin, account, promised)

    def _read(self, reading: Reading, begin: Any, account: Account, promised: int | None) -> Generator[Record]:
        at = reading.behind(begin, self.start_at, account) if self.start_at else begin
        count = 0
        for count, record in enumerate(timed_records(reading.open(at, account), account), 1):  # noqa: B007
            yield record
        if promised is not None and count != promised:
            raise wrong_index(reading, promised, fewer=count < promised)


def wrong_index(reading: Reading, promised: int, *, fewer: bool) -> StoreError:
    """Return the error for an index that promised another number of records: no short epoch comes of it."""
    return StoreError(
        f"the index says {promised:,} records, and there are {'fewer' if fewer else 'more'}; "
        "write it again by t2t.index(…)",
        url=reading.url,
    )


def in_batches(records: Iterator[Record], size: int, *, drop_remainder: bool) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of `size` records by field, in lists; a field that one of them does not have is None there.

    >>> list(in_batches(iter([{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]), 2, drop_remainder=False))
    [{'a': [1, 2], 'b': [None, 3]}, {'a': [4]}]
    """
    while batch := list(islice(records, size)):
        if len(batch) == size or not drop_remainder:
            yield {name: [record.get(name) for record in batch] for name in _names(batch)}


def _names(batch: Iterable[Record]) -> dict[str, None]:
    return dict.fromkeys(name for record in batch for name in record)
