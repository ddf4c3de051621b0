"""The order of a global shuffle: every step reads one record, of any shard. Nothing is held but what is near by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np

from ais_tar2tf.plan.permuting import Permutation
from ais_tar2tf.shard_index import Cut

__all__ = ["SingleCuts", "SingleRecords"]


class SingleRecords(Sequence[int]):
    """The shard of each step of one host: steps `first`, `first + step`, … of the permutation, `count` of them."""

    def __init__(self, counts: Sequence[int], first: int, step: int, count: int, *words: int) -> None:
        self._ends = np.cumsum(np.asarray(counts, np.int64))
        total = int(self._ends[-1]) if len(self._ends) else 0
        self._permutation = Permutation(total, *words)
        self._first = first
        self._step = step
        self._count = count if total else 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, which: int) -> int: ...
    @overload
    def __getitem__(self, which: slice) -> list[int]: ...
    def __getitem__(self, which: int | slice) -> int | list[int]:
        if isinstance(which, slice):
            return [self.place(step)[0] for step in range(self._count)[which]]
        return self.place(range(self._count)[which])[0]

    def place(self, step: int) -> tuple[int, int]:
        """(shard, record of it); behind the last record, the first ones follow again."""
        record = self._permutation.at((self._first + step * self._step) % len(self._permutation))
        shard = int(np.searchsorted(self._ends, record, side="right"))
        return shard, record - (int(self._ends[shard - 1]) if shard else 0)


class SingleCuts(Mapping[int, Cut]):
    """Of every step, the one record that is read."""

    def __init__(self, records: SingleRecords) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._records)))

    def __getitem__(self, step: int) -> Cut:
        if not 0 <= step < len(self._records):
            raise KeyError(step)
        _, record = self._records.place(step)
        return Cut(record, record + 1)
