"""The shards that were opened, and all that can be asked of them."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import xxhash

from ais_tar2tf.account import Account, OnError, Stats
from ais_tar2tf.cache import in_whole_blocks
from ais_tar2tf.class_names import find_class_names
from ais_tar2tf.completion import Completed
from ais_tar2tf.errors import (
    IndexMissing,
    MappingError,
    MissingField,
    NoSuchRecord,
    OptionError,
    SchemaError,
    StoreError,
    Tar2TFError,
)
from ais_tar2tf.export import DEFAULT_SIZE, Paths, write_files
from ais_tar2tf.extraction import Extracted, MembersStore, SelectsInside
from ais_tar2tf.indexing import Found, Place, beside, find, place_at, write
from ais_tar2tf.locations import location_text
from ais_tar2tf.nearest import known_options
from ais_tar2tf.options import MIB, Read, Shuffle, Writing, checked_slice, whole_number
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.reading import PlainReading, all_records, size_of, timed_records
from ais_tar2tf.reading.picking import read_numbered
from ais_tar2tf.records import NAMES, Grouping, Record, Selection, Want
from ais_tar2tf.schema import Schema
from ais_tar2tf.shard_index import Index
from ais_tar2tf.source._alike import (
    check_alike,
    differing_fields,
    warn_of_depths,
    what_else_to_select,
    what_to_select,
)
from ais_tar2tf.source._arguments import check_batching, check_even, check_unmapped, host_of, shuffle_option
from ais_tar2tf.source._ordered import Ordered
from ais_tar2tf.source._prepared import Prepared, usual_bytes
from ais_tar2tf.source._shares import note_share, with_index
from ais_tar2tf.stores import Access, Keeper, Store, TokenSource, moved, whole_url
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.watching import bottleneck_line

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.decoders import Decode
    from ais_tar2tf.schema import Schema
    from ais_tar2tf.tfdata.dataset import ShardDataset
    from ais_tar2tf.tfdata.traced import Fields
    from ais_tar2tf.tfdata.tracing import GraphMapping, PythonMapping

__all__ = ["Source"]

_SAMPLE_RECORDS = 64
_SAMPLE_GRACE = 2.0  # seconds until a request is left that a cache keeps for the first epoch: it wants the same bytes
_KEPT_SAMPLE = 8 * MIB  # a larger one is read again when it is asked for


class Source(Completed):
    """Shards in one store, with how they are read. Nothing is opened before it is asked for something."""

    __hidden__ = frozenset(
        {"as_shards", "decoded", "narrowed_as", "prepared", "reading", "skip_or_raise", "write_files", "write_index"}
    )

    def __init__(
        self,
        shards: Shards,
        account: Account | None = None,
        *,
        index: Place | bool = True,
        access: Access | None = None,
    ) -> None:
        self._shards = shards
        self._access = access or Access()
        self._account = account or Account()
        self._sample: list[Record] | None = None
        self._index_at = index
        self._found: Found | None = None
        self._in_cluster: bool | None = False  # whether the cluster selects; None: where that moves fewer bytes
        self._members: MembersStore | None = None
        self._extracted = Extracted()

    def __repr__(self) -> str:
        names = self._shards.names
        first = self._shards.store.url(names[0]) if len(names) else "nothing"
        return f"<Source of {len(names):,} shards: {first}{' …' if len(names) > 1 else ''}>"

    def _repr_html_(self) -> str:
        """In a notebook: what it names, and what became of it; nothing is read for it."""
        names, stats = self._shards.names, self.stats
        rows = {
            "shards": f"{len(names):,}",
            "first": self._shards.store.url(names[0]) if len(names) else "",
            "last": self._shards.store.url(names[-1]) if len(names) else "",
            "records handed out": f"{stats.records_emitted:,}",
            "skipped": ", ".join(f"{count:,} × {kind}" for kind, count in stats.skipped.items()) or "none",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(told)}</td></tr>" for name, told in rows.items())
        return f"<table style='text-align:left'><caption>Source</caption>{cells}</table>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same shards, and counts for itself: streams and connections stay here."""
        shards, place = self._shards, self._index_at
        how = (shards.names, shards.read, shards.grouping, shards.selection, self._account.on_error)
        index = (moved(place.store), place.name, place.named) if isinstance(place, Place) else place
        return _elsewhere, (moved(shards.store), *how, index, self._access)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open: streams that are being read, and connections kept for the next request."""
        self._shards.close()

    @property
    def shards(self) -> Iterator[str]:
        """The URLs of the shards, in order; a query that lets their bearer in is part of them."""
        return (whole_url(self._shards.store, name) for name in self._shards.names)

    @property
    def as_shards(self) -> Shards:
        """What is read, and how."""
        return self._shards

    @property
    def on_error(self) -> OnError:
        """What an error costs."""
        return self._account.on_error

    @property
    def stats(self) -> Stats:
        """What was read, handed out and skipped so far, over all iterations of this source."""
        return self._account.stats

    @property
    def bottleneck(self) -> str:
        """One line: which of network, parsing and consumer took the most time so far, and what to turn."""
        return bottleneck_line(self.stats)

    def __bool__(self) -> bool:
        return True  # not by `len`, which may have no answer

    def __iter__(self) -> Iterator[Record]:
        """Return `self.records()`."""
        return self.records()

    def __len__(self) -> int:
        """The number of records, as the index has it."""
        return self._needed_index().records_of(self._shards.names)

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> list[Record]: ...
    def __getitem__(self, which: int | slice) -> Record | list[Record]:
        """Records by their number in the order of the template: `src[7]`, `src[-1]`, `src[10:20]`."""
        if isinstance(which, slice):
            part = checked_slice(which)
            return self._run(range(len(self))[part])
        wanted = whole_number("a record's number", which)
        try:
            number = range(len(self))[wanted]
        except IndexError:
            raise NoSuchRecord(f"there is no record {wanted:,}: there are {len(self):,}") from None
        return self._run(range(number, number + 1))[0]

    @known_options
    def select(self, *fields: str | Want | Sequence[str | Want], in_cluster: bool | None = None) -> Source:
        """Only these fields: `"jpg"`, `"cls?"` (may be absent), `"image=jpg;png"` (the first there is, renamed).

        One list of fields means the same as several arguments.

        A field that a record lacks is not in it where Python gets it, and b"" in graphs and in elements of raw bytes.
        AIStore can look for them in the shards itself, and send nothing else. `in_cluster`: None: where that moves
        fewer bytes; True: wherever it can be done; False: never. The records are the same.
        """
        if in_cluster and not isinstance(self._shards.store, SelectsInside):
            raise StoreError("in_cluster=True needs shards in AIStore (ais://)", url=self._shards.store.url(""))
        chosen = self._with(replace(self._shards, selection=Selection(_listed(fields))))
        chosen._in_cluster = in_cluster if isinstance(self._shards.store, SelectsInside) else False
        chosen._extracted = Extracted()
        return chosen

    @property
    def extracted(self) -> Extracted:
        """What selecting in the cluster came to: shards and bytes, in all iterations of this source so far."""
        return self._extracted

    @property
    def schema(self) -> Schema:
        """What the records are, as far as a sample of the first ones tells; printed as a table that says so."""
        return self._schema_of(self._sampled())

    def _schema_of(self, sample: Sequence[Record]) -> Schema:
        from ais_tar2tf.schema import Inference

        inference = Inference(limits=self._shards.read.limits)
        account = self._account.twin()
        for record in sample:
            try:
                inference.add(record)
            except SchemaError as error:
                account.record_error(error)
        return replace(inference.schema, sampled=True)

    def _schema_to_decode(self, decode: Decode) -> Schema:
        """Return `schema`; warn of images that `decode` gives another depth than they have."""
        sample = self._sampled()
        schema = self._schema_of(sample)
        warn_of_depths(sample, (each for each in schema if not isinstance(decode, Mapping) or each.name in decode))
        return schema

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that the numbers in `cls` stand for; `()` when no document beside the shards names them.

        `t2t.pack` writes `classes.json` for class folders; of exported files it is their `manifest.json`.

        Raises:
            SchemaError: The document is damaged.
        """
        found = find_class_names(self._shards)
        return () if found is None else found.names

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
        even: str | None = None,
        start_at: int = 0,
    ) -> Iterator[Record]:
        """Every record, in order: `{"__key__": str, "__shard__": str, "jpg": bytes, …}`. TensorFlow is not needed.

        `decode=True` gives pixels, text, numbers and what JSON says instead of bytes, by the fields' names and a
        sample; `decode={"cls": ["cat", "dog"], "jpg": "image", "id": "int32"}` what it names, a Schema what it says.
        The other options mean what they mean to `dataset`, and give the same records in the same order. Every call
        begins with the first epoch. With `batch` a dict holds a list for each field: `{"__key__": ["a", "b"], …}`.
        """
        ordered = Ordered.of(
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            even=even,
            repeat=repeat,
            start_at=start_at,
            batch=batch,
            drop_remainder=drop_remainder,
        )
        records = self._raw_records() if ordered.is_plain else self._ordered_records(ordered)
        if decode is not None and decode is not False:
            records = self.decoded(records, decode, self._account)
        return ordered.batched(records)

    def _ordered_records(self, ordered: Ordered) -> Generator[Record]:
        if ordered.how is not None:
            self.stats.seed = ordered.loop.seed.value
        return ordered.loop.records(self.reading(ordered.how, ordered.shard, ordered.even), self._account)

    def decoded(self, records: Generator[Record], decode: Decode, account: Account) -> Iterator[Record]:
        """What `decode` makes of records; those of no use are skipped or raise, as `account` decides.

        An error closes `records`, which then are counted up to the one that is of no use.
        """
        from ais_tar2tf.decoders import decoding_of

        decoding = decoding_of(decode, lambda: self._schema_to_decode(decode), known=self._known_fields)
        with closing(records):
            for record in records:
                try:
                    decoded = decoding(record)
                except MappingError as error:
                    account.take_back(error)
                    continue
                yield decoded

    def _raw_records(self) -> Generator[Record]:
        shards = self._selected_inside()
        if shards.selection is not None and not isinstance(shards.store, MembersStore | FileStore):
            shards = replace(shards, layout=self._layout())
        return all_records(shards, self._account)

    def _layout(self) -> Index | None:
        """Where an index says that records are; reading does without."""
        try:
            return self._find_index().index
        except StoreError:
            return None

    def skip_or_raise(self, error: Tar2TFError) -> None:
        """What `on_error` says of a record that was handed out and turned out to be of no use."""
        self._account.take_back(error)

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
        even: str | None = None,
        start_at: int = 0,
        parallel: int | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        label_is_number: bool = False,
        graph: bool | None = None,
    ) -> ShardDataset:
        """A tf.data.Dataset: dicts of raw bytes, or what `map` makes of a record.

        Dicts of raw bytes have the same fields; where records differ, `select` says which. A `map` that runs as
        Python gets a record as `records` gives it. One that asks whether a record has a field runs so, unless
        `select` settles it. What it returns fits `output_types` and `output_shapes`, or is a MappingError.

        `decode` as `records` takes it: `map` then gets tensors; what has no tensor form (JSON, msgpack) stays bytes.
        `shuffle`: True, a window in records, `Shuffle`, or "global": a permutation over all records, which reads each
        by itself and needs an index. Without `seed` every run has another order (`stats.seed` says which seed was
        drawn); with `shard` the seed is then `options.SHARED_SEED`, so that the shares of all hosts are disjoint.
        `shard=(i, n)`: this host's share, `"env"` asks `t2t.hosts`; `even="pad" | "drop" | "stop"`: as many records
        as every other host; `start_at`: a record's number in the order; `repeat=None`, or -1 as in tf.data: for ever.
        `parallel`: calls of `map` at once; None or -1: what they take decides. Order depends on neither
        `parallel` nor read-ahead.

        `map` is traced into a TensorFlow graph when nothing in it would be frozen by that. A function that cannot be
        traced, or that can reach a source of random numbers, state or the clock (a generator in its closure, a
        counter that it writes), runs as Python, and needs `output_types` and `output_shapes`. One that draws or
        keeps state is called for one record after the other, in their order, unless `parallel` says how many calls
        run at once. `graph=True` traces it in any case, or raises; `graph=False` always runs it as Python.
        """
        how = shuffle_option(shuffle, seed)
        check_batching(batch, drop_remainder=drop_remainder)
        check_even(even, shard)
        if map is None and (decode is None or decode is False):
            check_unmapped(
                parallel=parallel,
                output_types=output_types,
                output_shapes=output_shapes,
                label_is_number=label_is_number,
            )
        prepared = self.prepared(
            map,
            decode,
            output_types=output_types,
            output_shapes=output_shapes,
            label_is_number=label_is_number,
            graph=graph,
        )
        return prepared.dataset(
            self.reading(how, shard, even, narrowed=prepared.source),
            self._account,
            how,
            batch=batch,
            drop_remainder=drop_remainder,
            repeat=repeat,
            shard=shard,
            start_at=start_at,
            parallel=parallel,
        )

    def prepared(
        self,
        map: Callable[[Any], Any] | None,  # noqa: A002  # as `dataset` has it
        decode: Decode | None,
        *,
        output_types: Any = None,
        output_shapes: Any = None,
        label_is_number: bool = False,
        graph: bool | None = None,
    ) -> Prepared:
        """What `dataset` reads of these shards, and what becomes of a record: the fields that the mapping needs."""
        from ais_tar2tf import mapping as mappings
        from ais_tar2tf.decoders import decoding_of
        from ais_tar2tf.tfdata import tracing

        source = self if map is None or not mappings.wants(map) else self._declared(map)
        sample = source._sampled()
        names, optional = source._columns(sample)
        if map is None and source._shards.selection is None:
            check_alike(sample, names)
        fields = source._fields(sample, all_read=map is None)
        if decode is not None and decode is not False:
            decoding = decoding_of(
                decode, lambda: source._schema_to_decode(decode), known=source._known_fields, in_graph=True
            )
            map = decoding.before(map)  # noqa: A001
        mapping = None
        if map is None and graph is not None:
            raise OptionError(f"graph={graph!r} says how map= runs, and there is no map=")
        if map is not None:
            try:
                mapping = tracing.prepare(
                    map,
                    fields,
                    sample[0] if sample else None,
                    output_types=output_types,
                    output_shapes=output_shapes,
                    label_is_number=label_is_number,
                    graph=graph,
                )
            except MissingField:
                source._check_sample(sample)
                raise
            names = (*(n for n in mapping.fields if n not in NAMES), *NAMES)
        return Prepared(source._read_by(mapping, names), names, optional, mapping, usual_bytes(sample, names))

    def narrowed_as(self, other: Prepared, map: Callable[[Any], Any] | None) -> Prepared:  # noqa: A002
        """What a dataset reads of these shards that hands out what another source's does."""
        from ais_tar2tf import mapping as mappings

        source = self if map is None or not mappings.wants(map) else self._declared(map)
        sample = source._sampled()
        names, optional = source._columns(sample)
        if other.mapping is not None:
            unlike = [name for name in other.mapping.absent if name in names]
            if unlike:
                raise SchemaError(
                    f"{self!r} has a field {unlike[0]!r}, unlike the mixture's first source, and the mapping asks "
                    "whether it is there; select() the fields that are meant, 'cls?' where some lack one"
                )
            names = tuple(name for name in other.names if name in names)
        optional |= other.optional
        read = source._read_by(other.mapping, names)
        return Prepared(read, names, optional, other.mapping, usual_bytes(sample, names))

    def reading(
        self,
        how: Shuffle | None,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        even: str | None = None,
        *,
        narrowed: Source | None = None,
    ) -> PlainReading:
        """These shards, or the fields of them that are left, in the order that `dataset` reads them in."""
        host, of_hosts = host_of(shard)
        plan = Plan(len(self._shards.names), how, host, of_hosts, even)
        source = narrowed or self
        plan, shards = self._planned(plan, source._shards, source._selected_in_order(plan))
        if plan.by_records:
            shards = replace(shards, store=in_whole_blocks(shards.store, self._checked_singles(shards)))
        return PlainReading(shards, plan)

    def _checked_singles(self, shards: Shards) -> int:
        """The bytes of all shards. A global shuffle needs every one of them to give single records."""
        index = self._needed_index()
        if not self._account.raises:
            raise OptionError("shuffle='global' needs on_error='raise': its order counts every record")
        total = 0
        for name in shards.names:
            known = index.get(name)
            if known is None or not known.placed or known.compressed:
                why = "is compressed" if known is not None and known.compressed else "has no places in the index"
                raise IndexMissing(
                    f"it {why}, so its records cannot be read one by one, as shuffle='global' does; use "
                    "shuffle=True, or t2t.pack the records as plain tars",
                    url=shards.store.url(name),
                )
            total += known.identity.size or 0
        return total

    @known_options
    def write_index(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        endpoint: str | None = None,
        token: TokenSource | None = None,
        progress: bool | None = None,
        counts_only: bool = False,
    ) -> Index:
        """What `t2t.index` does."""
        shards = replace(self._shards, selection=None)
        place = beside(shards) if out is None else place_at(out, shards, endpoint=endpoint, token=token)
        return write(shards, place, self._account, progress, counts_only=counts_only)

    def _find_index(self) -> Found:
        """The index, looked for once."""
        if self._found is None:
            names = self._shards.names
            beside_none = not len(names) or ("?" in names[0] and not isinstance(self._index_at, Place))  # a query
            if self._index_at is False or beside_none:
                self._found = Found(None, "no index is used")
            else:
                place = self._index_at if isinstance(self._index_at, Place) else beside(self._shards)
                self._found = find(self._shards, place)
        return self._found

    def _needed_index(self) -> Index:
        found = self._find_index()
        if found.index is None:
            first = self._shards.names[0] if len(self._shards.names) else ""
            raise IndexMissing(
                f"this needs an index, and {found.reason}; write one by t2t.index(…)",
                url=self._shards.store.url(first),
            )
        return found.index

    def _run(self, numbers: range) -> list[Record]:
        """Records by their numbers, each piece of a shard at once where they follow each other."""
        index = self._needed_index()
        shards = replace(self._shards, index=index)
        found: list[Record] = []
        for shard, cut in index.pieces(self._shards.names, numbers):
            part = read_numbered(shards, shard, cut, self._account.twin())
            if len(part) < cut.behind - cut.first:
                raise IndexMissing(
                    "the shard has fewer records than its index says; write it again by t2t.index(…)",
                    url=self._shards.store.url(self._shards.names[shard]),
                )
            found += part
        return found

    @known_options
    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = "tfrecord",  # noqa: A002  # the documented name
        name: str = "dataset",
        split: str = "train",
        splits: Mapping[str, Any] | None = None,
        seed: int = 0,
        shard_size: int | str | None = DEFAULT_SIZE,
        shard_records: int | None = None,
        align: str = "stream",
        workers: int | None = None,
        exists: str = "resume",
        record_to_example: Callable[[Record], Any] | None = None,
        schema: Schema | None = None,
        types: Mapping[str, Any] | None = None,
        idx: bool = False,
        shard: tuple[int, int] | None = None,
        progress: bool | None = None,
        writing: Writing | None = None,
        endpoint: str | None = None,
        token: TokenSource | None = None,
    ) -> list[str]:
        """Write every record into record files under `out`, a folder or a URL; gives the files.

        `format`: "tfrecord", "array_record" or "tar". `shard_size` is a bound, `shard_records` another one; given
        alone it sets the default size aside. `splits`: ratios, functions of a record, or lists of keys by name of
        the split. Run again after it was killed, it goes on where it was (`exists="resume"`). Fields are written as
        bytes, unless `types={"cls": "int64"}` names those that are numbers, a `schema` says more, or
        `record_to_example` makes a tf.train.Example of a record (for a tar: a dict of bytes). With
        `schema=src.schema` a number that is text stays text; `src.schema.with_field(Field("cls", "int64"))` makes it
        a number. `shard=(i, n)` with `align="shard"`: one host of a job array writes its share, which
        `t2t.finish(out)` publishes with all others'; the files given are then those that wait for it. Without
        `endpoint=`, a URL of the same scheme as the shards is written with the source's endpoint and token.
        """
        from ais_tar2tf.export.request import ExportOptions, export_source

        endpoint, token = self._access.to(location_text(out), endpoint, token)
        options = ExportOptions(
            format=format,
            name=name,
            split=split,
            splits=splits,
            seed=seed,
            shard_size=shard_size,
            shard_records=shard_records,
            align=align,
            workers=workers,
            exists=exists,
            record_to_example=record_to_example,
            schema=schema,
            types=types,
            idx=idx,
            shard=shard,
            progress=progress,
            writing=writing,
            endpoint=endpoint,
            token=token,
        )
        return export_source(self._shards, self._account.on_error, self._account, out, options)

    def write_files(
        self,
        path: Paths,
        record_to_example: Callable[[Record], Any],
        max_shard_size: int | str | None = None,
    ) -> list[str]:
        """TFRecord files under names of one's own, as `AisDataset.load_from_tar(path=…)` writes them."""
        return write_files(
            self._shards, self._account.on_error, self._account, path, record_to_example, max_shard_size
        )

    def _with(self, shards: Shards) -> Source:
        other = Source(shards, self._account, index=self._index_at, access=self._access)
        other._found, other._in_cluster, other._extracted = self._found, self._in_cluster, self._extracted
        if shards.selection is self._shards.selection:
            other._members = self._members
        return other

    def _selected_inside(self) -> Shards:
        """The shards, with the selected members only where the cluster selects."""
        shards = self._shards
        if self._in_cluster is False or shards.selection is None or not len(shards.names):
            return shards
        if self._members is None:
            self._members = MembersStore(
                shards.store,
                shards.names[0],
                shards.selection,
                shards.grouping,
                whenever=bool(self._in_cluster),
                extracted=self._extracted,
            )
        read = replace(shards.read, connections=1, most_connections=0)  # answers have no length, and know no ranges
        return replace(shards, store=self._members, read=read, index=None, check=self._members.check, tuning=None)

    def _selected_in_order(self, plan: Plan) -> Shards | None:
        """The same for a dataset. Windows are bounded in bytes of whole shards, and indexes tell places in these."""
        if plan.by_records:
            return None
        if self._in_cluster is None and (plan.shuffle is not None or self._find_index().index is not None):
            return None
        shards = self._selected_inside()
        return None if shards is self._shards else shards

    def _planned(self, plan: Plan, shards: Shards, selected: Shards | None = None) -> tuple[Plan, Shards]:
        """With what an index tells, unless records may be skipped: then it counts what nobody will see."""
        plan = replace(plan, key=_key_of(shards.names))
        if plan.even is not None and not self._account.raises:
            raise OptionError(
                f"even={plan.even!r} needs on_error='raise': a record that is skipped is missing somewhere"
            )
        if selected is not None:
            note_share(plan, "the cluster selects fields, for which no index is used", self._account)
            return plan, selected
        if not self._account.raises:
            return plan, shards
        return with_index(plan, shards, self._find_index(), self._account)

    def _declared(self, function: Callable[[Any], Any]) -> Source:
        """Only the fields that a mapping says it reads, under the names it gives them."""
        from ais_tar2tf import mapping as mappings

        selection = mappings.wants(function)
        if self._shards.selection is not None:
            return self
        return self._with(replace(self._shards, selection=selection))

    def _read_by(self, mapping: GraphMapping | PythonMapping | None, names: Sequence[str]) -> Source:
        """Only the fields that a traced mapping touches, or that elements have; Python gets records as they are."""
        from ais_tar2tf.tfdata.tracing import PythonMapping

        if isinstance(mapping, PythonMapping):
            return self
        chosen = self._shards.selection
        if chosen is not None:
            wants = [want for want in chosen.wants if want.name in names]
        else:
            wants = [Want(name, (name,)) for name in names if name not in NAMES]
            wants += [Want(name, (name,), optional=True) for name in mapping.absent] if mapping else []
        return self._with(replace(self._shards, selection=Selection(wants)))

    def _sampled(self) -> list[Record]:
        """The first records: fewer bytes than a chunk, from one connection, not counted."""
        if self._sample is not None:
            return self._sample
        read = self._shards.read
        limits = replace(read.limits, read_ahead_bytes=1 * MIB, chunk_records=_SAMPLE_RECORDS)
        shards = replace(
            self._shards, read=replace(read, limits=limits, connections=1, most_connections=0), tuning=None
        )
        plan = Plan(len(self._shards.names))
        stream = RecordStream(shards, plan, plan.begin(0, 0, 1), self._account.twin())
        try:
            sample = [*stream.next_chunk(full=True)]
        finally:
            stream.close(grace=_SAMPLE_GRACE if isinstance(self._shards.store, Keeper) else 0.0)
        if sum(map(size_of, sample)) <= _KEPT_SAMPLE:
            self._sample = sample
        return sample

    def _check_sample(self, sample: Sequence[Record]) -> None:
        """Raise what ended the sample, if an error did: a field may be missing in its records because of that."""
        plan = Plan(len(self._shards.names))
        stream = RecordStream(self._shards, plan, plan.begin(0, 0, 1), self._account.twin())
        for _ in islice(timed_records(stream, Account()), len(sample) + 1):
            pass

    def _known_fields(self) -> tuple[str, ...]:
        """The fields that records may have, as far as a selection or a sample tells."""
        sample = self._sampled()
        return self._columns(sample)[0] if sample or self._shards.selection is not None else ()

    def _fields(self, sample: list[Record], *, all_read: bool) -> Fields:
        """What a mapping may know of the fields before it sees a record; or what reads all of them."""
        from ais_tar2tf.tfdata.traced import Fields

        names, optional = self._columns(sample)
        chosen = self._shards.selection
        if chosen is None:
            differing = () if all_read else differing_fields(sample, names)
            return Fields(names, differing=frozenset(differing), advice=what_to_select(sample, names))
        return Fields(names, True, optional, advice=what_else_to_select(chosen))

    def _columns(self, sample: list[Record]) -> tuple[tuple[str, ...], frozenset[str]]:
        """The fields of a dataset's elements, and which of them may be absent."""
        selection = self._shards.selection
        if selection is not None:
            optional = frozenset(want.name for want in selection.wants if want.optional)
            return (*selection.names, *NAMES), optional
        if not sample:
            raise SchemaError(f"{self!r} has no records, so its fields are not known; say select(…)")
        names = dict.fromkeys(name for record in sample for name in record if name not in NAMES)
        return (*names, *NAMES), frozenset()


def _listed(fields: tuple[Any, ...]) -> Sequence[Any]:
    """Return the fields that were given one by one, or as one list."""
    return fields[0] if len(fields) == 1 and isinstance(fields[0], list | tuple) else fields


def _elsewhere(
    reopen: Callable[[], Store],
    names: Sequence[str],
    read: Read,
    grouping: Grouping,
    selection: Selection | None,
    on_error: OnError,
    index: tuple[Callable[[], Store], str, bool] | bool,
    access: Access,
) -> Source:
    place = index if isinstance(index, bool) else Place(index[0](), *index[1:])
    return Source(Shards(reopen(), names, read, grouping, selection), Account(on_error), index=place, access=access)


def _key_of(names: Sequence[str]) -> str:
    """What a checkpoint remembers of the shards: a few of their names, without their folders."""
    some = [names[at].rpartition("/")[2] for at in {0, len(names) // 2, len(names) - 1}] if len(names) else []
    return xxhash.xxh3_64_hexdigest("\0".join([str(len(names)), *some]).encode("utf-8", "surrogateescape"))
