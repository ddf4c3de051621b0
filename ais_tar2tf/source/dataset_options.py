"""The options of the methods `records` and `dataset`, which sources, mixtures and loaded record files have.

This module checks the options. It must not read data.

To add an option, document it in `DatasetOptions`, and add it to the keywords of each method that takes the option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.options import EVEN, Shuffle, check_effect, whole_number
from ais_tar2tf.streams.arguments import epochs_of, seed_of, shuffle_option
from ais_tar2tf.streams.datasets.loops import RecordLoop

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.values.decoders import Decode

__all__ = [
    "DatasetKeywords",
    "DatasetOptions",
    "LoadedDatasetKeywords",
    "LoadedRecordsKeywords",
    "MixtureDatasetKeywords",
    "MixtureRecordsKeywords",
    "RecordsKeywords",
]


_AUTOTUNE = -1  # the value of tf.data.AUTOTUNE; here, it stands for the default


class _LoopKeywords(TypedDict, total=False):
    seed: int | None
    batch: int | None
    drop_remainder: bool
    repeat: int | None
    shard: tuple[int, int] | tf.distribute.InputContext | str | None
    start_at: int


class _EvenKeywords(TypedDict, total=False):
    even: str | None


class MixtureRecordsKeywords(_LoopKeywords, total=False):
    """The options of `Mixture.records`."""

    decode: Decode | None
    shuffle: bool | int | str | Shuffle | None


class RecordsKeywords(MixtureRecordsKeywords, _EvenKeywords, total=False):
    """The options of `Source.records`."""


class MixtureDatasetKeywords(MixtureRecordsKeywords, total=False):
    """The options of `Mixture.dataset`."""

    parallel: int | None
    output_types: Any
    output_shapes: Any
    graph: bool | None


class DatasetKeywords(MixtureDatasetKeywords, _EvenKeywords, total=False):
    """The options of `Source.dataset`."""

    label_is_number: bool


class LoadedDatasetKeywords(_LoopKeywords, _EvenKeywords, total=False):
    """The options of `Loaded.dataset`."""

    shuffle: bool | int | None
    interleave: int | None


class LoadedRecordsKeywords(LoadedDatasetKeywords, total=False):
    """The options of `Loaded.records`."""

    decode: Decode | None


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """The options of `records` and `dataset`, checked. Each method takes some of them.

    Attributes:
        decode: How the bytes of fields are decoded: True, a dict or a schema. With True, the name of a field and a
            sample of records decide whether the field becomes pixels, text, a number or parsed JSON. A dict states
            the kind of each field: `{"cls": ["cat", "dog"], "jpg": "image", "id": "int32"}`. In a graph, a field
            that no tensor can hold (JSON, msgpack) stays bytes.
        shuffle: True, or a window in records, or an `options.Shuffle`. `"global"` permutes all records: each record
            is read singly, and an index is needed.
        seed: The seed of the shuffle. Default: every run draws another seed, shown by `stats.seed`. With `shard`, the
            default is `options.SHARED_SEED`: with the same seed, the shares of all hosts are disjoint.
        batch: The number of records in a batch.
        drop_remainder: Leave out a last batch that has fewer records.
        interleave: The number of record files that are read in turns. Default: 1 in order, 16 when shuffled.
        repeat: The number of epochs. None, or -1 as in tf.data: endless.
        shard: `(i, n)`: read the share of host i of n. `"env"`: `t2t.hosts` finds i and n. Or a
            `tf.distribute.InputContext`.
        even: How all hosts get the same number of records. `"pad"` repeats some records. `"drop"` leaves some out.
            `"stop"` ends the epoch of each host after as many records as the smallest share has.
        start_at: The number of records to leave out at the start of the first epoch. If it exceeds an epoch, whole
            epochs are left out, too.
        parallel: The number of simultaneous calls of `map`. Default, or -1: as many as make reading faster. The
            order of the records does not depend on this number.
        output_types: The types that `map` returns. A mapping that runs as Python needs them.
        output_shapes: The shapes that `map` returns. A mapping that runs as Python needs them.
        label_is_number: Convert the field `cls` to int32 if `map` returns it unchanged as the second value of a pair.
        graph: True: trace `map`, or raise an error. False: run `map` as Python. Default: trace `map`, unless it uses
            random numbers, state or the clock of Python: a trace would keep their first values.
    """

    decode: Decode | None = None
    shuffle: bool | int | str | Shuffle | None = None
    seed: int | None = None
    batch: int | None = None
    drop_remainder: bool = False
    interleave: int | None = None
    repeat: int | None = 1
    shard: Any = None
    even: str | None = None
    start_at: int = 0
    parallel: int | None = None
    output_types: Any = None
    output_shapes: Any = None
    label_is_number: bool = False
    graph: bool | None = None

    def __post_init__(self) -> None:
        _ = self.strategy
        if self.batch is None:
            check_effect("drop_remainder", self.drop_remainder, "without batch=", "say batch=, or leave it out")
        if self.shard is None:
            check_effect("even", self.even, "without shard=", "say shard=(i, n), or leave it out")
        if self.even is not None:
            check_choice("even", self.even, EVEN)

    @cached_property
    def strategy(self) -> Shuffle | None:
        """The shuffle that `shuffle` and `seed` describe together; None if records are not shuffled."""
        return shuffle_option(self.shuffle, self.seed)

    @property
    def decoding(self) -> Decode | None:
        """`decode`, or None if nothing is decoded."""
        return None if self.decode is False else self.decode

    @property
    def calls(self) -> int | None:
        """The number of simultaneous calls of a mapping; None: their cost decides."""
        return None if self.parallel in (None, _AUTOTUNE) else whole_number("parallel", self.parallel, minimum=1)

    @property
    def files_at_once(self) -> int | None:
        """The number of record files that are read in turns; None: the order decides."""
        return None if self.interleave is None else whole_number("interleave", self.interleave, minimum=1)

    def check_mapping(self, map: Callable[[Any], Any] | None) -> None:  # noqa: A002  # as users call it
        """Refuse the options that need a mapping, unless `map` or `decode` is given.

        Raises:
            OptionError: An option has no effect, because there is no mapping.
        """
        if map is not None or self.decoding is not None:
            return
        advice = "it is about what a mapping returns; leave it out"
        check_effect("parallel", self.calls, "without map= or decode=", advice)
        for name in ("output_types", "output_shapes", "label_is_number"):
            check_effect(name, getattr(self, name), "without map= or decode=", advice)

    def loop(self, strategy: Shuffle | None, *, shared: bool = False) -> RecordLoop:
        """Return the loop over the records. If a shuffle has no seed, choose one.

        Args:
            strategy: The shuffle; None if records are not shuffled.
            shared: Whether several workers read parts of the dataset, even without `shard`. If so, the default
                seed is `options.SHARED_SEED` for all of them.
        """
        return RecordLoop(
            seed=seed_of(strategy, shared=shared or self.shard is not None),
            epochs=epochs_of(self.repeat),
            start_at=whole_number("start_at", self.start_at, minimum=0),
            batch=None if self.batch is None else whole_number("batch", self.batch, minimum=1),
            drop_remainder=self.drop_remainder,
        )
