"""`t2t.mix`: makes several sources into one. Each record is drawn from a random source, by weights.

A mixture must not draw: `streams/datasets/mixture.py` decides which source the next record comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from ais_tar2tf.base.completion import Completed
from ais_tar2tf.base.monitoring.metrics import bottleneck_line
from ais_tar2tf.base.monitoring.stats import Account, Stats
from ais_tar2tf.base.nearest import check_choice, known_options
from ais_tar2tf.base.shared_options import takes_options_of
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.options import Shuffle, whole_number
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source
from ais_tar2tf.source.dataset_options import DatasetOptions, MixtureDatasetKeywords, MixtureRecordsKeywords
from ais_tar2tf.source.elements import build_dataset, plan_elements, plan_elements_like
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.plain_records import decoded_batches
from ais_tar2tf.source.read_plan import plan_reading
from ais_tar2tf.streams.datasets.mixture import AT_END, MixedReading, checked_weights
from ais_tar2tf.streams.order import strategy_of

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset
    from ais_tar2tf.tfdata.request import Elements

__all__ = ["Mixture", "mix"]


@known_options
def mix(
    sources: Sequence[Source], weights: Sequence[float] | None = None, *, seed: int = 0, at_end: str = "stop"
) -> Mixture:
    """Mix several sources into one. Each record comes from a source that is drawn at random.

    Args:
        sources: The sources, as `t2t.open` returns them.
        weights: How often a record is drawn from each source, in proportion. Default: equally often from all.
        seed: The seed of the draws. An epoch of the same number has the same draws in every run.
        at_end: What happens when a source has no more records. `"stop"` ends the epoch of the mixture, `"drop"`
            continues with the other sources, and `"repeat"` reads the source again until all sources were read once.

    Returns:
        A mixture, which iterates over records and makes datasets as a source does.

    Raises:
        OptionError: There are no sources, their `on_error` differ, or a weight is negative.
        OptionTypeError: `sources` is no list of sources.

    Example:
        >>> import ais_tar2tf as t2t
        >>> from ais_tar2tf.stores.memory import MemoryStore
        >>> for name in "ab":
        ...     records = ({"__key__": f"{name}{n}", "txt": "x"} for n in range(3))
        ...     _ = t2t.pack(records, f"memory://mixdoc/{name}-{{}}.tar")
        >>> sources = [t2t.open(f"memory://mixdoc/{name}-0.tar") for name in "ab"]
        >>> sorted(record["__key__"] for record in t2t.mix(sources, weights=[3, 1], at_end="drop").records())
        ['a0', 'a1', 'a2', 'b0', 'b1', 'b2']
    """
    return Mixture(sources, weights, seed=seed, at_end=at_end)


class Mixture(Completed):
    """Several sources that are read as one."""

    def __init__(
        self, sources: Sequence[Source], weights: Sequence[float] | None, *, seed: int = 0, at_end: str = "stop"
    ) -> None:
        given: Any = sources  # which may be anything in a user's code
        if isinstance(given, str) or not all(isinstance(source, Source) for source in given):
            raise OptionTypeError(f"sources are a list of what t2t.open gives, not {sources!r}")
        if not sources:
            raise OptionError("there is nothing to mix: give sources, as t2t.open returns them")
        check_choice("at_end", at_end, AT_END)
        if any(source.on_error != sources[0].on_error for source in sources):
            raise OptionError("all sources of a mixture must have the same on_error=")
        self._sources = tuple(sources)
        self._weights = checked_weights(weights, len(sources))
        self._seed = whole_number("seed", seed)
        self._at_end = at_end
        self._account = Account(sources[0].on_error)

    def __repr__(self) -> str:
        weighed = ", ".join(
            f"{weight:g} × {source!r}" for weight, source in zip(self._weights, self._sources, strict=True)
        )
        return f"<Mixture of {weighed}>"

    def __enter__(self) -> Mixture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.close()

    @property
    def stats(self) -> Stats:
        """The counts of records, bytes and errors of the mixture. A source counts only what it reads by itself."""
        return self._account.stats

    @property
    def bottleneck(self) -> str:
        """One line that says which of network, parsing and consumer took the most time, and what to change."""
        return bottleneck_line(self.stats)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the numbers in `cls`; `()` unless all sources agree."""
        named = {source.classes for source in self._sources}
        return named.pop() if len(named) == 1 else ()

    def select(self, *fields: str) -> Mixture:
        """Return a mixture that reads only some fields of every source.

        Args:
            *fields: As `Source.select` takes them.
        """
        chosen = [source.select(*fields) for source in self._sources]
        return Mixture(chosen, self._weights, seed=self._seed, at_end=self._at_end)

    def __iter__(self) -> Iterator[Record]:
        """Return `self.records()`."""
        return self.records()

    @known_options
    @takes_options_of(DatasetOptions, MixtureRecordsKeywords)
    def records(self, **options: Unpack[MixtureRecordsKeywords]) -> Iterator[Record]:
        """Iterate over the records of all sources as dicts, as `Source.records` does.

        Each source is shuffled separately, and `shard` reads a share of each source. The first records of the first
        source show how fields are decoded.

        Args:
            **options: See `DatasetOptions`.

        Returns:
            An iterator over records. With `batch`, a dict holds a list for each field.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
            RecordError: Members do not form a valid record.
            MappingError: A field cannot be decoded.
        """
        given = DatasetOptions(**options)
        strategy = self._strategy(given)
        loop = given.loop(strategy)
        if strategy is not None:
            self.stats.seed = loop.seed.value
        first = self._sources[0].opened
        reading = self._reading([source.opened for source in self._sources], strategy, given)
        return decoded_batches(loop.records(reading, self._account), loop, given, first, self._account)

    @known_options
    @takes_options_of(DatasetOptions, MixtureDatasetKeywords)
    def dataset(
        self,
        map: Callable[[Any], Any] | None = None,  # noqa: A002  # the documented name
        **options: Unpack[MixtureDatasetKeywords],
    ) -> ShardDataset:
        """Make a tf.data.Dataset of the records of all sources, as `Source.dataset` does.

        Each source is shuffled separately, and `shard` reads a share of each source. Every source must have
        the fields that are read; choose them by `select`.

        Args:
            map: A function of a record that returns an element. In a graph, a record is a dict of tensors. In Python,
                it is a dict of bytes.
            **options: See `DatasetOptions`.

        Returns:
            A dataset, whose iterators can be checkpointed.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            MissingField: `map` reads a field that no record has.
            SchemaError: The sources have different fields; or `map` has to run as Python, and its output types are
                not given.
            MappingError: The result of `map` does not fit `output_types` and `output_shapes`.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
        """
        given = DatasetOptions(**options)
        given.check_mapping(map)
        parts = self._elements(map, given)
        strategy = self._strategy(given)
        elements = [part for _, part in parts]
        together = replace(
            elements[0],
            optional=frozenset().union(*(part.optional for part in elements)),
            record_bytes=max(part.record_bytes for part in elements),
        )
        reading = self._reading([opened for opened, _ in parts], strategy, given)
        return build_dataset(together, reading, self._account, strategy, given)

    def _strategy(self, options: DatasetOptions) -> Shuffle | None:
        """Return the shuffle of each source. All windows together have at most the bytes of one."""
        return strategy_of(options.strategy).among(len(self._sources))

    def _elements(
        self,
        map: Callable[[Any], Any] | None,  # noqa: A002
        options: DatasetOptions,
    ) -> list[tuple[OpenedShards, Elements]]:
        """Trace the mapping with the fields of the first source, and check that the other sources have them too."""
        from ais_tar2tf.tfdata.mappings.mapping import PythonMapping

        opened, first = plan_elements(self._sources[0].opened, map, options)
        others = [plan_elements_like(first, source.opened, map) for source in self._sources[1:]]
        if isinstance(first.mapping, PythonMapping):  # a Python mapping gets whole records
            return [(opened, first), *others]
        for source, (_, other) in zip(self._sources[1:], others, strict=True):
            missing = set(first.names) - set(other.names)
            surplus = set(other.names) - set(first.names) if first.mapping is None else set[str]()
            if missing or surplus:
                difference = f"{'lacks' if missing else 'has also'} {', '.join(sorted(missing or surplus))}"
                raise SchemaError(
                    f"{source!r} {difference}, unlike {self._sources[0]!r}; select() the fields that are meant, "
                    "'cls?' if some records lack 'cls'"
                )
        return [(opened, first), *others]

    def _reading(
        self, parts: Sequence[OpenedShards], strategy: Shuffle | None, options: DatasetOptions
    ) -> MixedReading:
        """Return the reading of all sources. Together they read ahead as many bytes as one source alone."""
        readings = [plan_reading(part, strategy, options.shard) for part in parts]
        mixed = [replace(part, session=part.session.among(part.read.of_source(len(parts)), 1)) for part in readings]
        return MixedReading(tuple(mixed), self._weights, self._seed, self._at_end)
