"""Shards named by URLs, and what can be made of them: records, a dataset. It composes; it decides nothing twice."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf.account import Account, OnError, Stats
from ais_tar2tf.errors import SchemaError, ShardNotFound, Tar2TFError, TemplateError
from ais_tar2tf.export import DEFAULT_SIZE, Paths, write_files
from ais_tar2tf.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.options import MIB, Limits, Read, Retry, Shuffle, Timeouts, Writing
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import RecordStream, Shards
from ais_tar2tf.records import NAMES, Grouping, Record, Selection, Want
from ais_tar2tf.stores import Store, open_store, split_url
from ais_tar2tf.templates import expand, unescape

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.tfdata import ShardDataset

__all__ = ["Source", "iter_records", "open_source", "read_options", "shard_names"]

_SAMPLE_RECORDS = 64
_LISTABLE = frozenset({"ais", "file", "memory"})  # in plain HTTP's URLs a `?` begins a query


def read_options(
    *,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    limits: Limits | None = None,
    connections: int | None = None,
    allow_missing_end: bool = False,
) -> Read:
    """The options that were given, and defaults for the others."""
    given = {"timeouts": timeouts, "retry": retry, "limits": limits, "connections": connections}
    named = {name: value for name, value in given.items() if value is not None}
    return Read(**named, allow_missing_end=allow_missing_end)  # type: ignore[arg-type]


def shard_names(store: Store, templates: str | Sequence[str], limits: Limits, *, listable: bool) -> Sequence[str]:
    """The names that templates stand for; a prefix/ and a glob are resolved by listing."""
    given = [templates] if isinstance(templates, str) else list(templates)
    if not listable or not any(is_prefix(each) or is_glob(each) for each in given):
        return expand(templates if isinstance(templates, str) else given, limit=limits.template)
    names: list[str] = []
    for pattern in expand(given, limit=limits.template, keep_escapes=True):
        if not is_prefix(pattern) and not is_glob(pattern):
            names.append(unescape(pattern))
            continue
        found = _listed(store, pattern)
        before = len(names)
        for name in found:
            names.append(name)
            if len(names) > limits.template:
                raise TemplateError(f"{pattern!r} names over {limits.template:,} shards, Limits.template")
        if len(names) == before:
            raise ShardNotFound(f"nothing matches {pattern!r}", url=store.url(glob_prefix(pattern)))
    return names


def _listed(store: Store, pattern: str) -> Iterator[str]:
    matches: Callable[[str], bool] = glob_match(pattern) if is_glob(pattern) else bool
    for info in store.list(glob_prefix(pattern)):
        if matches(info.name):
            yield info.name


def open_source(
    urls: str | Sequence[str],
    *,
    endpoint: str | None = None,
    token: str | None = None,
    fields: Sequence[str] | None = None,
    grouping: Grouping = "first-dot",
    on_error: OnError = "raise",
    limits: Limits | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts | None = None,
    connections: int | None = None,
    allow_missing_end: bool = False,
) -> Source:
    """Shards by URL: a template, a list of them, a `prefix/`, or a glob.

    >>> import ais_tar2tf as t2t
    >>> src = t2t.open("memory://doc/train-{0..3}.tar")
    >>> list(src.shards)[-1]
    'memory://doc/train-3.tar'
    """
    read = read_options(
        timeouts=timeouts,
        retry=retry,
        limits=limits,
        connections=connections,
        allow_missing_end=allow_missing_end,
    )
    given = [urls] if isinstance(urls, str) else list(urls)
    if not given or not all(given):
        raise TemplateError("no shards are named: give a URL, a path, or a list of them")
    parts = [split_url(url) for url in given]
    places = {(scheme, bucket) for scheme, bucket, _ in parts}
    if len(places) > 1:
        raise TemplateError(f"one bucket or host at a time, not {len(places)}: {given[0]!r} …")
    ((scheme, bucket),) = places
    store = open_store(scheme, bucket, read, endpoint=endpoint, token=token)
    names = shard_names(store, [name for *_, name in parts], read.limits, listable=scheme in _LISTABLE)
    selection = Selection(fields) if fields is not None else None
    return Source(Shards(store, names, read, grouping, selection), on_error=on_error)


def iter_records(urls: str | Sequence[str], **options: Any) -> Iterator[Record]:
    """The records of shards by URL, one after the other; options as `open` takes them."""
    source = open_source(urls, **options)
    try:
        yield from source.records()
    finally:
        source.close()


class Source:
    """Shards in one store, with how they are read. Nothing is opened before it is asked for something."""

    def __init__(self, shards: Shards, *, on_error: OnError = "raise") -> None:
        self._shards = shards
        self._account = Account(on_error)
        self._sample: list[Record] | None = None

    def __repr__(self) -> str:
        names = self._shards.names
        first = self._shards.store.url(names[0]) if len(names) else "nothing"
        return f"<Source of {len(names):,} shards: {first}{' …' if len(names) > 1 else ''}>"

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open: streams that are being read, and connections kept for the next request."""
        self._shards.close()

    @property
    def shards(self) -> Iterator[str]:
        """The URLs of the shards, in order."""
        return map(self._shards.store.url, self._shards.names)

    @property
    def stats(self) -> Stats:
        """What was read, handed out and skipped so far, over all iterations of this source."""
        return self._account.stats

    def select(self, *fields: str | Want) -> Source:
        """Only these fields: `"jpg"`, `"cls?"` (may be absent), `"image=jpg;png"` (the first there is, renamed)."""
        return self._with(replace(self._shards, selection=Selection(fields)))

    def records(self) -> Iterator[Record]:
        """Every record, in order: `{"__key__": str, "__shard__": str, "jpg": bytes, …}`."""
        plan = Plan(len(self._shards.names))
        stream = RecordStream(self._shards, plan, plan.begin(0, 0, 1), self._account)
        try:
            while chunk := stream.next_chunk():
                emitted = 0
                try:
                    for emitted, record in enumerate(chunk, 1):  # noqa: B007  # counted also when the reader stops
                        yield record
                finally:
                    self._account.emitted(emitted)
        finally:
            stream.close()

    def skip_or_raise(self, error: Tar2TFError) -> None:
        """What `on_error` says of a record that was handed out and turned out to be of no use."""
        self._account.take_back(error)

    def dataset(
        self,
        map: Callable[[Any], Any] | None = None,  # noqa: A002  # the documented name
        *,
        shuffle: bool | int | Shuffle | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | None = None,
        start_at: int = 0,
        parallel: int | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        label_is_number: bool = False,
    ) -> ShardDataset:
        """A tf.data.Dataset: dicts of raw bytes, or what `map` makes of a record.

        `shuffle`: True, a window in records, or `Shuffle`; `shard=(i, n)`: this host's share; `start_at`: a
        record's number in the order; `repeat=None`: for ever. Order depends on neither `parallel` nor read-ahead.
        """
        from ais_tar2tf import mapping as mappings
        from ais_tar2tf import tfdata, tracing
        from ais_tar2tf.chunks import Request

        how = _shuffle_option(shuffle, seed)
        host, hosts = _host(shard)
        source = self if map is None or not mappings.wants(map) else self._declared(map)
        sample = source._sampled()
        names, optional = source._columns(sample)
        prepared = None
        if map is not None:
            prepared = tracing.prepare(
                map,
                names,
                sample[0] if sample else None,
                output_types=output_types,
                output_shapes=output_shapes,
                label_is_number=label_is_number,
            )
            names = (*(n for n in prepared.fields if n not in NAMES), *NAMES)
            source = source._narrowed(names, optional)
        request = Request(
            shards=source._shards,
            plan=Plan(len(self._shards.names), how, host, hosts),
            account=self._account,
            names=names,
            optional=optional,
            mapping=prepared,
            batch=batch,
            drop_remainder=drop_remainder,
            repeat=-1 if repeat is None else repeat,
            seed=random.getrandbits(62) if how is None or how.seed is None else how.seed,
            start_at=start_at,
            parallel=parallel,
            auto_shard=shard is None,
        )

        def build(request: Request) -> ShardDataset:
            def reshuffled(window: int | None, seed: int | None, reshuffle: bool) -> ShardDataset:
                chosen = replace(_shuffle_option(window or True, seed) or Shuffle(), reshuffle_each_epoch=reshuffle)
                seed = random.getrandbits(62) if seed is None else seed
                return build(replace(request, plan=replace(request.plan, shuffle=chosen), seed=seed))

            return tfdata.ShardDataset(tfdata.build(request), reshuffled)

        return build(request)

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
        idx: bool = False,
        progress: bool | None = None,
        writing: Writing | None = None,
        endpoint: str | None = None,
        token: str | None = None,
    ) -> list[str]:
        """Write every record into record files under `out`, a folder or a URL; gives the files.

        `format`: "tfrecord", "array_record" or "tar". `shard_size` is a bound, `shard_records` another one; given
        alone it sets the default size aside. `splits`: ratios, functions of a record, or lists of keys by name of
        the split. Run again after it was killed, it goes on where it was (`exists="resume"`). Fields are written as
        bytes, unless `record_to_example` makes a tf.train.Example (for a tar: a dict of bytes) of a record.
        """
        from ais_tar2tf.export.request import ExportOptions, export_source

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
            idx=idx,
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
        other = Source(shards)
        other._account = self._account
        return other

    def _declared(self, function: Callable[[Any], Any]) -> Source:
        """Only the fields that a mapping says it reads, under the names it gives them."""
        from ais_tar2tf import mapping as mappings

        selection = mappings.wants(function)
        if self._shards.selection is not None:
            return self
        return self._with(replace(self._shards, selection=selection))

    def _narrowed(self, names: Sequence[str], optional: frozenset[str]) -> Source:
        """Only the fields that a traced mapping touches."""
        chosen = self._shards.selection
        if chosen is not None:
            wants = [want for want in chosen.wants if want.name in names]
        else:
            wants = [Want(name, (name,), optional=name in optional) for name in names if name not in NAMES]
        return self._with(replace(self._shards, selection=Selection(wants)))

    def _sampled(self) -> list[Record]:
        """The first records: fewer bytes than a chunk, from one connection, not counted."""
        if self._sample is None:
            read = self._shards.read
            limits = replace(read.limits, read_ahead_bytes=1 * MIB, chunk_records=_SAMPLE_RECORDS)
            shards = replace(self._shards, read=replace(read, limits=limits, connections=1))
            plan = Plan(len(self._shards.names))
            stream = RecordStream(shards, plan, plan.begin(0, 0, 1), self._account.twin())
            try:
                self._sample = stream.next_chunk()
            finally:
                stream.close()
        return self._sample

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


def _shuffle_option(shuffle: bool | int | Shuffle | None, seed: int | None) -> Shuffle | None:
    if shuffle is None or shuffle is False:
        return None
    if isinstance(shuffle, Shuffle):
        return shuffle if seed is None else replace(shuffle, seed=seed)
    return Shuffle(seed=seed) if shuffle is True else Shuffle(window=shuffle, seed=seed)


def _host(shard: Any) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    if hasattr(shard, "input_pipeline_id"):  # a tf.distribute.InputContext
        return shard.input_pipeline_id, shard.num_input_pipelines
    host, hosts = shard
    return host, hosts
