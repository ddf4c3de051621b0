"""`Source`: the shards that a user opened. Its methods delegate to the other modules of this package.

A source must not parse, download, or decide an order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from ais_tar2tf.base.completion import Completed
from ais_tar2tf.base.monitoring.metrics import bottleneck_line
from ais_tar2tf.base.monitoring.stats import Account, OnError, Stats
from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.shared_options import takes_options_of
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import NoSuchRecord, StoreError
from ais_tar2tf.options import Read, whole_number
from ais_tar2tf.recordfiles.export.request import ExportKeywords, ExportOptions, export_source
from ais_tar2tf.records import Grouping, Record, Selection, Want
from ais_tar2tf.source.dataset_options import DatasetKeywords, DatasetOptions, RecordsKeywords
from ais_tar2tf.source.description import as_html, as_line
from ais_tar2tf.source.elements import build_dataset, plan_elements
from ais_tar2tf.source.index_lookup import IndexLookup, records_by_number
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.plain_records import read_records
from ais_tar2tf.source.read_plan import plan_reading
from ais_tar2tf.stores import Access, Store, TokenSource, portable_opener
from ais_tar2tf.streams.arguments import checked_slice
from ais_tar2tf.streams.class_names import find_class_names
from ais_tar2tf.streams.in_cluster.store import Extracted, SelectsInside
from ais_tar2tf.streams.index.files import IndexPlace, default_place, place_at, write_index
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.reader import ReadSession, Shards
from ais_tar2tf.values.schema import Schema

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["Source"]


class Source(Completed):
    """Shards in one store, and the options for reading them. No shard is read before its records are needed.

    A source can be iterated over any number of times, and can be pickled. When a `with` block of a source ends, the
    source is closed. The attribute `opened` is the state of the source, which the other modules of this package use.
    """

    __hidden__ = frozenset({"opened", "write_index"})

    def __init__(self, opened: OpenedShards) -> None:
        self.opened: OpenedShards = opened

    def __repr__(self) -> str:
        return as_line(self.opened.shards)

    def _repr_html_(self) -> str:
        return as_html(self.opened.shards, self.stats)

    def __reduce__(self) -> tuple[Any, ...]:
        """Describe how another process opens the same shards, with its own connections, streams and statistics."""
        opened = self.opened
        shards, place = opened.shards, opened.index.at
        index = (portable_opener(place.store), place.name, place.named) if isinstance(place, IndexPlace) else place
        how = (shards.names, shards.read, shards.grouping, shards.selection)
        return _reopened, (portable_opener(shards.store), how, self.on_error, index, opened.access)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all streams, and the connections that are kept for further requests."""
        self.opened.session.close()

    @property
    def shards(self) -> Iterator[str]:
        """The URLs of the shards, in order. A signed URL includes its query, which grants access."""
        shards = self.opened.shards
        return (shards.store.full_url(name) for name in shards.names)

    @property
    def on_error(self) -> OnError:
        """The option `on_error` of `t2t.open`: whether an error is raised, or the record or the shard is skipped."""
        return self.opened.account.on_error

    @property
    def stats(self) -> Stats:
        """The counts of records, bytes and errors, over all iterations of this source."""
        return self.opened.account.stats

    @property
    def bottleneck(self) -> str:
        """One line that says which of network, parsing and consumer took the most time, and what to change."""
        return bottleneck_line(self.stats)

    @property
    def extracted(self) -> Extracted:
        """Counters that show what AIStore's selection of members has saved and cost, over all iterations."""
        return self.opened.extracted

    @property
    def schema(self) -> Schema:
        """The types of the fields, inferred from the first records."""
        return self.opened.sample.schema

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the numbers in `cls`; `()` if no document states them.

        `t2t.pack` writes the names of classes to `classes.json`, and an export writes them to its `manifest.json`.

        Raises:
            SchemaError: The document is damaged.
        """
        found = find_class_names(self.opened.shards)
        return () if found is None else found.names

    def __bool__(self) -> bool:
        return True  # without this method, `bool` would call `len`, which needs an index

    def __iter__(self) -> Iterator[Record]:
        """Return `self.records()`."""
        return self.records()

    def __len__(self) -> int:
        """Return the number of records. This needs an index."""
        return self.opened.index.required().records_of(self.opened.shards.names)

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> list[Record]: ...
    def __getitem__(self, which: int | slice) -> Record | list[Record]:
        """Read records by their numbers in the order of the shards. This needs an index.

        Args:
            which: A number, also a negative one, or a slice: `src[7]`, `src[-1]`, `src[10:20]`.

        Returns:
            A record, or a list of records.

        Raises:
            NoSuchRecord: There is no record with this number.
            IndexMissing: There is no index; `t2t.index` writes one.
        """
        if isinstance(which, slice):
            part = checked_slice(which)
            return self._numbered(range(len(self))[part])
        wanted = whole_number("a record's number", which)
        try:
            number = range(len(self))[wanted]
        except IndexError:
            raise NoSuchRecord(f"there is no record {wanted:,}: there are {len(self):,}") from None
        return self._numbered(range(number, number + 1))[0]

    def _numbered(self, numbers: range) -> list[Record]:
        opened = self.opened
        return records_by_number(opened.shards, opened.index.required(), numbers, opened.account)

    @known_options
    def select(self, *fields: str | Want | Sequence[str | Want], in_cluster: bool | None = None) -> Source:
        """Return a source that reads only some fields. All other fields are skipped without being copied.

        If a record lacks an optional field, its dict lacks the field, too. A tensor cannot be absent: in mappings
        that are traced into a graph, and in elements of raw bytes, the field is b"".

        Args:
            *fields: `"jpg"` is a field, and `"cls?"` a field that may be absent. `"jpg;png"` means `jpg` if a record
                has it, otherwise `png`. `"image=jpg;png"` gives this field the name `image`. One list of fields
                means the same as several arguments.
            in_cluster: Whether AIStore selects the fields and sends nothing else. True: for each shard for which
                this is possible. False: never. Default: for shards for which this saves many bytes. The option does
                not change the records.

        Returns:
            A source over the same shards, which shares its statistics with this source.

        Raises:
            OptionError: A field is given twice, or its text is malformed.
            StoreError: `in_cluster` is True, and the shards are not in AIStore.
        """
        store = self.opened.shards.store
        selects = isinstance(store, SelectsInside)
        if in_cluster and not selects:
            raise StoreError("in_cluster=True needs shards in AIStore (ais://)", url=store.url(""))
        is_list = len(fields) == 1 and isinstance(fields[0], list | tuple)
        given: Any = fields[0] if is_list else fields
        selected = self.opened.selecting(Selection(given))
        return Source(replace(selected, in_cluster=in_cluster if selects else False, extracted=Extracted()))

    @known_options
    @takes_options_of(DatasetOptions, RecordsKeywords)
    def records(self, **options: Unpack[RecordsKeywords]) -> Iterator[Record]:
        """Iterate over the records as dicts: `{"__key__": str, "__shard__": str, "jpg": bytes, …}`.

        TensorFlow is not needed. The options mean the same as for `dataset`, and give the same records in the same
        order. Every call begins with the first epoch.

        Args:
            **options: See `DatasetOptions`.

        Returns:
            An iterator over records. With `batch`, a dict holds a list for each field:
            `{"__key__": ["a", "b"], …}`.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
            RecordError: Members do not form a valid record.
            MappingError: A field cannot be decoded.
        """
        return read_records(self.opened, DatasetOptions(**options))

    @known_options
    @takes_options_of(DatasetOptions, DatasetKeywords)
    def dataset(
        self,
        map: Callable[[Any], Any] | None = None,  # noqa: A002  # the documented name
        **options: Unpack[DatasetKeywords],
    ) -> ShardDataset:
        """Make a tf.data.Dataset, whose iterators can be checkpointed.

        Without `map` and `decode`, elements are dicts of raw bytes, all with the same fields. If records have
        different fields, `select` decides which fields are read.

        `map` is traced into a TensorFlow graph if this does not change its results. In three cases, `map` runs as
        Python instead, and needs `output_types` and `output_shapes`:

        * It cannot be traced.
        * It can reach randomness, state or the clock of Python, which a trace would freeze. Examples are a generator
          in its closure, and a counter that it writes.
        * It asks whether a record has a field, and no `select` says whether all records have this field.

        A function that draws random numbers or keeps state is called for one record after the other, unless
        `parallel` is given.

        Args:
            map: A function of a record that returns an element. In a graph, a record is a dict of tensors. In Python,
                it is a dict of bytes, as `records` yields it.
            **options: See `DatasetOptions`.

        Returns:
            A dataset. Errors of its iterators are errors of this package.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            MissingField: `map` reads a field that no record has.
            SchemaError: `map` has to run as Python, and its output types are not given.
            MappingError: The result of `map` does not fit `output_types` and `output_shapes`.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
        """
        given = DatasetOptions(**options)
        given.check_mapping(map)
        opened, elements = plan_elements(self.opened, map, given)
        reading = plan_reading(opened, given.strategy, given.shard, given.even)
        return build_dataset(elements, reading, self.opened.account, given.strategy, given)

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
        """Write an index of the shards, as `t2t.index` does.

        Args:
            out: A folder or a file to write to. Default: next to the shards.
            endpoint: The endpoint of the store of `out`.
            token: The token for this endpoint.
            progress: Whether to show a progress bar. Default: only on a terminal.
            counts_only: Only count records. Shards in AIStore are then not read, because AIStore lists their members.

        Returns:
            The index.

        Raises:
            SchemaError: The grouping is a function. An index can store only the name of a grouping.
            ExportError: `out` is an existing file, and is no index.
            StoreError: A shard cannot be read, or the index cannot be written.
        """
        shards = replace(self.opened.shards, selection=None)
        place = default_place(shards) if out is None else place_at(out, shards, endpoint=endpoint, token=token)
        return write_index(shards, place, self.opened.account, progress, counts_only=counts_only)

    @known_options
    @takes_options_of(ExportOptions, ExportKeywords)
    def export(self, out: str | os.PathLike[str], **options: Unpack[ExportKeywords]) -> list[str]:
        """Write every record to record files. The files get their final names when all files are complete.

        Args:
            out: A folder or a URL.
            **options: See `ExportOptions`.

        Returns:
            The paths or URLs of the files. With the option `shard`, the files are not published yet: call
            `t2t.finish(out)` when all hosts have written their files.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            SchemaError: A record does not fit the schema, or a tf.train.Example cannot hold a value.
            ExportError: A file cannot be written, or `out` holds another export.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
        """
        given = ExportOptions(**options)
        endpoint, token = self.opened.access.to(location_text(out), given.endpoint, given.token)
        given = replace(given, endpoint=endpoint, token=token)
        return export_source(self.opened.shards, self.on_error, self.opened.account, out, given)


def _reopened(
    reopen: Callable[[], Store],
    how: tuple[Sequence[str], Read, Grouping, Selection | None],
    on_error: OnError,
    index: tuple[Callable[[], Store], str, bool] | bool,
    access: Access,
) -> Source:
    """Make the source that `__reduce__` described, with the same shards, in another process."""
    shards = Shards(reopen(), *how)
    place = index if isinstance(index, bool) else IndexPlace(index[0](), *index[1:])
    return Source(
        OpenedShards(
            session=ReadSession(shards), index=IndexLookup(shards, place), account=Account(on_error), access=access
        )
    )
