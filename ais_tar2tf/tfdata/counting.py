"""Computes how many records one element of a dataset consumes. This module must not import TensorFlow.

A *stage* is a call of a method of `tf.data.Dataset` that derives another dataset. The number is found stage by stage:

    src.dataset(shuffle=True)   1 record
        .map(decode)            1 record
        .batch(32)              32 records
        .prefetch(2)            32 records
        .filter(is_good)        unknown; `Counting.refused` states the reason

`Resume` uses this number to find the record that comes after the last batch that the training has consumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

__all__ = ["COUNT_ARGUMENTS", "STAGES", "UNKNOWN_ARGUMENT", "Counting"]

_DROPS = "it leaves out an unknown number of elements"
_REGROUPS = "it changes the number of elements in a way that cannot be known"
_KEEPS = "a new run has none of its stored elements"
_MERGES = "it adds elements of other datasets"
_BUFFERS = "elements in its buffer are lost with the process; call .shuffle() directly on the dataset, before .map()"

_REFUSED = {
    "bucket_by_sequence_length": _REGROUPS,
    "cache": _KEEPS,
    "concatenate": _MERGES,
    "enumerate": "its numbers would begin at 0 again",
    "filter": _DROPS,
    "flat_map": _REGROUPS,
    "group_by_window": _REGROUPS,
    "ignore_errors": _DROPS,
    "interleave": _REGROUPS,
    "rebatch": _REGROUPS,
    "rejection_resample": _DROPS,
    "scan": "its state is lost with the process",
    "shuffle": _BUFFERS,
    "snapshot": _KEEPS,
    "sparse_batch": _REGROUPS,
    "take_while": _DROPS,
    "unbatch": _REGROUPS,
    "unique": _DROPS,
    "window": _REGROUPS,
}
_COUNTED = ("batch", "map", "padded_batch", "prefetch", "ragged_batch", "repeat", "shard", "skip", "take")
_NO_LIMIT = 2**62  # elements: more than any dataset has

COUNT_ARGUMENTS = frozenset({"batch_size", "count", "num_shards", "index", "drop_remainder"})
"""The arguments that decide how many records an element consumes. TensorFlow also accepts tensors as their values."""

UNKNOWN_ARGUMENT = "known to a graph only"
"""Stands for the value of an argument if the user gave a tensor that has no constant value."""

STAGES = (*_COUNTED, *_REFUSED, "with_options")
"""The methods of tf.data.Dataset that derive another dataset."""


@dataclass(frozen=True)
class _Grouping:
    """A stage that groups or skips elements: `.batch()`, `.shard()` or `.skip()`.

    The stage turns n elements into ceil((n - omitted) / size) elements.
    """

    size: int
    omitted: int = 0
    is_batch: bool = False

    def results(self, elements: int) -> int:
        return max(0, -(-(elements - self.omitted) // self.size))


@dataclass(frozen=True)
class Counting:
    """The relation between the records of a source and the elements that a training step gets.

    Attributes:
        groups: The stages before `.repeat()` that group or skip elements, in the order of their calls.
        repeated: Whether an endless `.repeat()` of tf.data follows these stages.
        repeated_elements: Each element of the last stage is made from this many elements of the repeated dataset.
        max_elements: The number of elements after which `.take()` ends an iterator; `_NO_LIMIT` without `.take()`.
        refused: The reason why the records of an element cannot be counted; None if the records can be counted.
    """

    groups: tuple[_Grouping, ...] = ()
    repeated: bool = False
    repeated_elements: int = 1
    max_elements: int = _NO_LIMIT
    refused: str | None = None

    @classmethod
    def batches(cls, size: int | None, *, drop_remainder: bool = False) -> Counting:
        """Return the counting of batches of `size` records. If `size` is None, elements are single records."""
        return cls() if size is None else cls()._batched(size, drop_remainder=drop_remainder)

    @property
    def records(self) -> int:
        """The number of records in a full element."""
        return self.records_before_repeat * self.repeated_elements

    @property
    def records_before_repeat(self) -> int:
        """The number of records in a full element of the dataset that `.repeat()` repeats."""
        return prod(group.size for group in self.groups)

    @property
    def is_batched(self) -> bool:
        """Whether elements are batches. Even a batch may have only one record."""
        return self.repeated_elements > 1 or any(group.is_batch for group in self.groups)

    @property
    def min_records(self) -> int:
        """The smallest number of records in an epoch from which the stages make at least one element."""
        records = 1
        for group in reversed(self.groups):
            records = (records - 1) * group.size + group.omitted + 1
        return records

    def elements(self, records: int) -> int:
        """Return how many elements the stages before `.repeat()` make of an epoch of `records` records."""
        for group in self.groups:
            records = group.results(records)
        return records

    def after(self, stage: str, arguments: Mapping[str, Any]) -> Counting:
        """Return the counting of the dataset that the method `stage` derives when it is called with `arguments`."""
        if self.refused is not None:
            return self
        if stage in _REFUSED:
            return self._refuse(f".{stage}(): {_REFUSED[stage]}")
        if arguments.get("deterministic") is False:
            return self._refuse(f".{stage}(deterministic=False): the order of its elements cannot be known")
        if UNKNOWN_ARGUMENT in arguments.values():
            return self._refuse(f".{stage}(): one of its arguments is {UNKNOWN_ARGUMENT}")
        if stage in ("batch", "padded_batch", "ragged_batch"):
            return self._batched(arguments["batch_size"], drop_remainder=arguments["drop_remainder"])
        if stage == "shard":
            return self._add(_Grouping(arguments["num_shards"], arguments["index"]))
        if stage == "skip" and not self.repeated:
            return self._add(_Grouping(1, arguments["count"] if arguments["count"] >= 0 else _NO_LIMIT))
        if stage == "repeat":
            return self._repeat(arguments["count"])
        if stage == "take" and arguments["count"] != -1:
            return replace(self, max_elements=min(self.max_elements, arguments["count"]))
        return self

    def _refuse(self, reason: str) -> Counting:
        return replace(self, refused=reason)

    def _batched(self, size: int, *, drop_remainder: bool) -> Counting:
        return self._add(_Grouping(size, size - 1 if drop_remainder else 0, is_batch=True))

    def _add(self, group: _Grouping) -> Counting:
        """Return the counting after one more stage that groups elements."""
        max_elements = self.max_elements if self.max_elements == _NO_LIMIT else group.results(self.max_elements)
        if self.repeated:
            return replace(self, repeated_elements=self.repeated_elements * group.size, max_elements=max_elements)
        return replace(self, groups=(*self.groups, group), max_elements=max_elements)

    def _repeat(self, count: int | None) -> Counting:
        """Return the counting after `.repeat(count)`, which is refused unless it is endless or has no effect."""
        if count == 1 or (self.repeated and count in (None, -1)):
            return self
        if count not in (None, -1):
            return self._refuse(
                f".repeat({count}): leave it out, because fit counts epochs by itself, or call it directly on the "
                "dataset"
            )
        if self.max_elements < _NO_LIMIT:
            return self._refuse(
                ".take() and then .repeat(): the repetition that is resumed would be longer than the others"
            )
        return replace(self, repeated=True)
