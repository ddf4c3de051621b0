"""How many records one element of a dataset takes, worked out stage by stage. No TensorFlow.

src.dataset(shuffle=True)   one record an element
    .map(decode)            the same
    .batch(32)              32
    .prefetch(2)            the same
    .filter(is_good)        nobody knows: the counting is refused, with the reason
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["AMOUNTS", "STAGES", "UNKNOWN", "Counting"]

_DROPS = "it leaves elements out, and how many cannot be known"
_REGROUPS = "it makes another number of elements"
_KEEPS = "a new run has none of what it kept"
_MERGES = "it takes elements of other datasets, too"
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
    "scan": "the state that it hands on is lost with the process",
    "shuffle": _BUFFERS,
    "snapshot": _KEEPS,
    "sparse_batch": _REGROUPS,
    "take_while": _DROPS,
    "unbatch": _REGROUPS,
    "unique": _DROPS,
    "window": _REGROUPS,
}
_FOLLOWED = ("batch", "map", "padded_batch", "prefetch", "ragged_batch", "repeat", "shard", "skip", "take")
_LARGE = 2**62  # elements: more than any dataset has

AMOUNTS = frozenset({"batch_size", "count", "num_shards", "index", "drop_remainder"})
"""Arguments of stages whose values decide the counting; TensorFlow also takes them as tensors."""

UNKNOWN = "known to a graph only"
"""Stands for the value of such a tensor."""

STAGES = (*_FOLLOWED, *_REFUSED, "with_options")
"""Methods of tf.data.Dataset that make another dataset of it."""


@dataclass(frozen=True)
class _Group:
    """One stage that makes one element of `size`, or leaves some out: of m it makes ceil((m - without) / size)."""

    size: int
    without: int = 0
    batches: bool = False

    def of(self, elements: int) -> int:
        return max(0, -(-(elements - self.without) // self.size))


@dataclass(frozen=True)
class Counting:
    """The stages between the records of a source and the elements that a training step gets.

    Attributes:
        groups: Stages that make one element of several, or skip some; the first one is next to the records.
        repeated: tf.data's own `.repeat()` stands after these groups: it reads epoch after epoch for ever.
        regrouped: Elements of the repeated dataset that one element takes.
        most: The number of elements after which `.take()` ends an iterator.
        refused: Why the records of an element cannot be counted.
    """

    groups: tuple[_Group, ...] = ()
    repeated: bool = False
    regrouped: int = 1
    most: int = _LARGE
    refused: str | None = None

    @classmethod
    def batches(cls, size: int | None, *, drop_remainder: bool = False) -> Counting:
        """Return the counting of batches of records, or of single records."""
        return cls() if size is None else cls()._grouped(size, drop_remainder=drop_remainder)

    @property
    def records(self) -> int:
        """How many records a full element takes."""
        taken = self.regrouped
        for group in self.groups:
            taken *= group.size
        return taken

    @property
    def batched(self) -> bool:
        """Whether elements are batches, even of one record each."""
        return self.regrouped > 1 or any(group.batches for group in self.groups)

    @property
    def records_repeated(self) -> int:
        """How many records an element takes that tf.data's `.repeat()` repeats."""
        return self.records // self.regrouped

    @property
    def least(self) -> int:
        """The records from which on there is one element."""
        least = 1
        for group in reversed(self.groups):
            least = (least - 1) * group.size + group.without + 1
        return least

    def elements(self, records: int) -> int:
        """Return how many elements an epoch of so many records has, before they are regrouped."""
        for group in self.groups:
            records = group.of(records)
        return records

    def after(self, stage: str, arguments: Mapping[str, Any]) -> Counting:
        """Return the counting after one more stage, called with these arguments."""
        if self.refused is not None:
            return self
        if stage in _REFUSED:
            return self._refuse(f".{stage}(): {_REFUSED[stage]}")
        if arguments.get("deterministic") is False:
            return self._refuse(f".{stage}(deterministic=False): the order of its elements cannot be known")
        if UNKNOWN in arguments.values():
            return self._refuse(f".{stage}(): one of its arguments is {UNKNOWN}")
        if stage in ("batch", "padded_batch", "ragged_batch"):
            return self._grouped(arguments["batch_size"], drop_remainder=arguments["drop_remainder"])
        if stage == "shard":
            return self._add(_Group(arguments["num_shards"], arguments["index"]))
        if stage == "skip" and not self.repeated:
            return self._add(_Group(1, arguments["count"] if arguments["count"] >= 0 else _LARGE))
        if stage == "repeat":
            return self._repeat(arguments["count"])
        if stage == "take" and arguments["count"] != -1:
            return replace(self, most=min(self.most, arguments["count"]))
        return self

    def _refuse(self, why: str) -> Counting:
        return replace(self, refused=why)

    def _grouped(self, size: int, *, drop_remainder: bool) -> Counting:
        return self._add(_Group(size, size - 1 if drop_remainder else 0, batches=True))

    def _add(self, group: _Group) -> Counting:
        most = self.most if self.most == _LARGE else group.of(self.most)
        if self.repeated:
            return replace(self, regrouped=self.regrouped * group.size, most=most)
        return replace(self, groups=(*self.groups, group), most=most)

    def _repeat(self, count: int | None) -> Counting:
        if count == 1 or (self.repeated and count in (None, -1)):
            return self
        if count not in (None, -1):
            return self._refuse(
                f".repeat({count}): leave it out, since fit counts epochs by itself, or call it directly on the "
                "dataset"
            )
        if self.most < _LARGE:
            return self._refuse(".take() and then .repeat(): every repetition but the broken one would be shorter")
        return replace(self, repeated=True)
