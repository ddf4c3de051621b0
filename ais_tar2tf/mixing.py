"""t2t.mix: several sources as one, drawn from by weights. It composes sources; what is drawn, `mixed` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf.account import Account, Stats
from ais_tar2tf.completion import Completed
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.nearest import check_choice, known_options
from ais_tar2tf.options import Shuffle, whole_number
from ais_tar2tf.reading import PlainReading
from ais_tar2tf.reading.mixed import AT_END, MixedReading, checked_weights
from ais_tar2tf.records import Record
from ais_tar2tf.source import Ordered, Prepared, Source, check_batching, check_unmapped, shuffle_option
from ais_tar2tf.watching import bottleneck_line

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.decoders import Decode
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["Mixture", "mix"]


@known_options
def mix(
    sources: Sequence[Source], weights: Sequence[float] | None = None, *, seed: int = 0, at_end: str = "stop"
) -> Mixture:
    """Several sources as one: each record is of a source that is drawn, by `weights` (by default all alike).

    `at_end` says what a source that runs out does: it ends the mixture ("stop"), leaves it to the others ("drop"), or
    begins again, until each was read to its end once ("repeat"). The same seed draws the same in every epoch of the
    same number.

    >>> import ais_tar2tf as t2t
    >>> from ais_tar2tf.stores.memory import MemoryStore
    >>> for name in "ab":
    ...     _ = t2t.pack(({"__key__": f"{name}{n}", "txt": "x"} for n in range(3)), f"memory://mixdoc/{name}-{{}}.tar")
    >>> sources = [t2t.open(f"memory://mixdoc/{name}-0.tar") for name in "ab"]
    >>> sorted(record["__key__"] for record in t2t.mix(sources, weights=[3, 1], at_end="drop").records())
    ['a0', 'a1', 'a2', 'b0', 'b1', 'b2']
    """
    return Mixture(sources, weights, seed=seed, at_end=at_end)


class Mixture(Completed):
    """What `t2t.mix` gives."""

    def __init__(
        self, sources: Sequence[Source], weights: Sequence[float] | None, *, seed: int = 0, at_end: str = "stop"
    ) -> None:
        given: Any = sources  # users' code
        if isinstance(given, str) or not all(isinstance(source, Source) for source in given):
            raise OptionTypeError(f"sources are a list of what t2t.open gives, not {sources!r}")
        if not sources:
            raise OptionError("there is nothing to mix: give sources, as t2t.open makes them")
        check_choice("at_end", at_end, AT_END)
        if any(source.on_error != sources[0].on_error for source in sources):
            raise OptionError("the sources of a mixture have the same on_error=")
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
        """Close the sources."""
        for source in self._sources:
            source.close()

    @property
    def stats(self) -> Stats:
        """What was read, handed out and skipped so far by the mixture; the sources' own count what they did alone."""
        return self._account.stats

    @property
    def bottleneck(self) -> str:
        """As that of a source."""
        return bottleneck_line(self.stats)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that the numbers in `cls` stand for, where they are the same in all sources; else `()`."""
        named = {source.classes for source in self._sources}
        return named.pop() if len(named) == 1 else ()

    def select(self, *fields: str) -> Mixture:
        """Only these fields, of every source."""
        chosen = [source.select(*fields) for source in self._sources]
        return Mixture(chosen, self._weights, seed=self._seed, at_end=self._at_end)

    def __iter__(self) -> Iterator[Record]:
        """Return `self.records()`."""
        return self.records()

    @known_options
    def records(
        self,
        *,
        decode: Decode | None = None,
        shuffle: bool | int | str | Shuffle | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        start_at: int = 0,
    ) -> Iterator[Record]:
        """The records as the sources have them, by the options that `Source.records` takes.

        `decode` goes by what the first source has.
        """
        ordered = Ordered.of(
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            repeat=repeat,
            start_at=start_at,
            batch=batch,
            drop_remainder=drop_remainder,
        )
        how = self._of_each(ordered.how)
        if how is not None:
            self.stats.seed = ordered.loop.seed.value
        reading = self._mixed([source.reading(how, shard) for source in self._sources])
        records = ordered.loop.records(reading, self._account)
        if decode is not None and decode is not False:
            records = self._sources[0].decoded(records, decode, self._account)
        return ordered.batched(records)

    @known_options
    def dataset(
        self,
        map: Callable[[Any], Any] | None = None,  # noqa: A002  # the documented name
        *,
        decode: Decode | None = None,
        shuffle: bool | int | str | Shuffle | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        start_at: int = 0,
        parallel: int | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        graph: bool | None = None,
    ) -> ShardDataset:
        """As `Source.dataset`. `shuffle` shuffles each source by itself, `shard` gives of each its share.

        All sources have the same fields; where they don't, `select` says which are meant.
        """
        how = shuffle_option(shuffle, seed)
        check_batching(batch, drop_remainder=drop_remainder)
        if map is None and (decode is None or decode is False):
            check_unmapped(parallel=parallel, output_types=output_types, output_shapes=output_shapes)
        prepared = self._prepared(map, decode, output_types=output_types, output_shapes=output_shapes, graph=graph)
        how = self._of_each(how)
        pairs = zip(self._sources, prepared, strict=True)
        together = replace(
            prepared[0],
            optional=frozenset().union(*(each.optional for each in prepared)),
            record_bytes=max(each.record_bytes for each in prepared),
        )
        return together.dataset(
            self._mixed([source.reading(how, shard, narrowed=each.source) for source, each in pairs]),
            self._account,
            how,
            batch=batch,
            drop_remainder=drop_remainder,
            repeat=repeat,
            shard=shard,
            start_at=start_at,
            parallel=parallel,
        )

    def _of_each(self, how: Shuffle | None) -> Shuffle | None:
        """How each source is shuffled: their windows are together no larger than one."""
        if how is None or how.whole:
            return how
        return replace(how, window_bytes=max(1, how.window_bytes // len(self._sources)))

    def _prepared(self, map: Any, decode: Decode | None, **how: Any) -> list[Prepared]:  # noqa: A002
        """The mapping is traced over the first source; the others have to have the fields that it reads."""
        from ais_tar2tf.tfdata.tracing import PythonMapping

        first = self._sources[0].prepared(map, decode, **how)
        others = [source.narrowed_as(first, map) for source in self._sources[1:]]
        if isinstance(first.mapping, PythonMapping):  # which gets records as they are
            return [first, *others]
        for source, other in zip(self._sources[1:], others, strict=True):
            missing = set(first.names) - set(other.names)
            surplus = set(other.names) - set(first.names) if first.mapping is None else set[str]()
            if missing or surplus:
                what = f"{'lacks' if missing else 'has also'} {', '.join(sorted(missing or surplus))}"
                raise SchemaError(
                    f"{source!r} {what}, unlike {self._sources[0]!r}; select() the fields that are meant, "
                    "'cls?' where some lack one"
                )
        return [first, *others]

    def _mixed(self, parts: Sequence[PlainReading]) -> MixedReading:
        """Together they read no further ahead than one source alone."""
        sharing = [part.shards.among(part.shards.read.of_source(len(parts)), 1) for part in parts]
        each = tuple(replace(part, shards=shards) for part, shards in zip(parts, sharing, strict=True))
        return MixedReading(each, self._weights, self._seed, self._at_end)
