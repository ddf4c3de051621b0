"""The options of `records` and `dataset`: of a source, of a mixture, and of loaded record files.

To add an option, add it to `DatasetOptions`, with its documentation, and to the keywords of the methods that take it.
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


_AUTOTUNE = -1  # tf.data's constant, which stands for the default


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
        decode: How the bytes of fields are decoded. True: into pixels, text, numbers and parsed JSON, as the names of
            fields and a sample show. A dict from fields to kinds:
            `{"cls": ["cat", "dog"], "jpg": "image", "id": "int32"}`. Or a schema. In a graph, a field that no tensor
            can hold (JSON, msgpack) stays bytes.
        shuffle: True, or a window in records, or an `options.Shuffle`. `"global"`: a permutation of all records,
            which reads each record singly and needs an index.
        seed: The seed of the shuffle. Default: every run draws another seed, shown by `stats.seed`. With `shard`, the
            default is `options.SHARED_SEED`, so that the shares of all hosts are disjoint.
        batch: The number of records in a batch.
        drop_remainder: Leave out a last batch that has fewer records.
        interleave: The number of record files that are read in turns. Default: 1 in order, 16 when shuffled.
        repeat: The number of epochs. None, or -1 as in tf.data: endless.
        shard: `(i, n)`: read the share of host i of n. `"env"`: `t2t.hosts` finds i and n. Or an InputContext.
        even: Give all hosts equally many records. `"pad"` repeats some records, `"drop"` leaves some out, and
            `"stop"` ends the epoch of all hosts with the smallest share.
        start_at: The number of the first record, in the order of all epochs.
        parallel: The number of simultaneous calls of `map`. Default, or -1: as many as make reading faster. The
            order of the records does not depend on it.
        output_types: The types that `map` returns. A mapping that runs as Python needs them.
        output_shapes: The shapes that `map` returns. A mapping that runs as Python needs them.
        label_is_number: Convert the field `cls` to int32 if `map` returns it unchanged as the second value of a pair.
        graph: True: trace `map`, or raise an error. False: run it as Python. Default: trace it unless it uses
            randomness, state or the clock of Python, which a trace would freeze.
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
        """The shuffle that `shuffle` and `seed` describe together; None for the order of the shards."""
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
        """Refuse options of a mapping if there is none.

        Raises:
            OptionError: Such an option is given without `map` and `decode`.
        """
        if map is not None or self.decoding is not None:
            return
        advice = "it is about what a mapping returns; leave it out"
        check_effect("parallel", self.calls, "without map= or decode=", advice)
        for name in ("output_types", "output_shapes", "label_is_number"):
            check_effect(name, getattr(self, name), "without map= or decode=", advice)

    def loop(self, strategy: Shuffle | None, *, shared: bool = False) -> RecordLoop:
        """Return the loop over the records, for which a seed is drawn if none is given.

        Args:
            strategy: The shuffle.
            shared: Whether several workers read parts of the dataset, even without `shard`.
        """
        return RecordLoop(
            seed=seed_of(strategy, shared=shared or self.shard is not None),
            epochs=epochs_of(self.repeat),
            start_at=whole_number("start_at", self.start_at, minimum=0),
            batch=None if self.batch is None else whole_number("batch", self.batch, minimum=1),
            drop_remainder=self.drop_remainder,
        )
