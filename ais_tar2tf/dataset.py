"""AisDataset: the documented client. It owns the defaults and composes what is below."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.cache import aligned, cached, shelf_of
from ais_tar2tf.completion import Completed
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError, TemplateError
from ais_tar2tf.export import Paths, write_payloads
from ais_tar2tf.locations import Location, Locations, location_text, location_texts, shown_location
from ais_tar2tf.mapping import default_record_to_example, default_record_to_pair
from ais_tar2tf.nearest import known_options, takes_an_argument
from ais_tar2tf.ops import Pipeline
from ais_tar2tf.options import Cache, Limits, Retry, Shuffle, Timeouts, Tls, check_effect
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record
from ais_tar2tf.source import Source, read_options, shard_names
from ais_tar2tf.stores import Access, TokenSource, remember
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.templates import escape

if TYPE_CHECKING:
    from ais_tar2tf.cluster.etl.definition import Definition
    from ais_tar2tf.cluster.etl.transformer import Transformer
    from ais_tar2tf.cluster.remote import Choice

__all__ = ["AisDataset"]

_log = logging.getLogger("ais_tar2tf")


class AisDataset(Completed):
    """Tar shards of one bucket as TensorFlow datasets, or as TFRecord files.

    The endpoint is `proxy_url`, else AIS_ENDPOINT; the token `token` (text, or a function that gives one), else
    AIS_AUTHN_TOKEN, else the file that AIS_AUTHN_TOKEN_FILE names. `conversions` and
    `selections` (see `ops`) say what becomes of every record, where no function of yours does.
    """

    @known_options
    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        *,
        token: TokenSource | None = None,
        provider: str = "ais",
        conversions: Sequence[Any] = (),
        selections: Any = (),
        grouping: Grouping = "first-dot",
        on_error: OnError = "raise",
        limits: Limits | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        connections: int | None = None,
        tls: Tls | None = None,
        allow_missing_end: bool = False,
        allow_concatenated: bool = False,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> None:
        self._read = read_options(
            timeouts=timeouts,
            retry=retry,
            limits=limits,
            connections=connections,
            tls=tls,
            allow_missing_end=allow_missing_end,
            allow_concatenated=allow_concatenated,
        )
        self.executed: str = "here"
        bucket = bucket.removeprefix(f"{provider}://").rstrip("/")
        self._bucket, self._endpoint, self._token, self._provider = bucket, proxy_url, token, provider
        store = partial(AisStore, bucket, self._read, endpoint=proxy_url, token=token, provider=provider)
        self._store = store()
        remember(self._store, store)
        self._cache = Cache(cache) if cache is not None and not isinstance(cache, Cache) else cache
        self._shelf = shelf_of(self._cache) if self._cache is not None else None
        if self._cache is not None:
            self._read = aligned(self._read)
        self._shards = Shards(self._store, (), self._read, grouping)
        self._on_error: OnError = on_error
        self._pipeline = Pipeline(conversions, selections) if conversions or selections else None

    def __repr__(self) -> str:
        return f"AisDataset({self._store!r})"

    def __enter__(self) -> AisDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close what is open: streams that are being read, and connections kept for the next request."""
        self._shards.close()

    def _names(self, template: Locations, account: Account | None = None) -> Sequence[str]:
        return shard_names(self._store, location_texts(template, self._within), self._read.limits, account)

    def _within(self, location: Location) -> str:
        """Return a template within the bucket; one that is written as a URL of this bucket is meant so."""
        text, url = location_text(location), self._store.url("")
        if f"{text}/" == url or text == url:
            return "**"
        if "://" in text and not text.startswith(url):
            raise TemplateError(
                f"{shown_location(text)} is not in the bucket {self._bucket!r}, whose shards are read here; t2t.open "
                "reads any URL"
            )
        return text.removeprefix(url)

    def source(self, template: Locations) -> Source:
        """The shards that a template names, with everything that a Source can do."""
        account = Account(self._on_error)
        names = self._names(template, account)
        store = self._store if self._cache is None else cached(self._store, self._cache, account, self._shelf)
        access = Access("ais", self._endpoint, self._token)
        return Source(replace(self._shards, store=store, names=names), account, access=access)

    @known_options
    def load_from_tar(
        self,
        template: Locations,
        path: Paths | None = None,
        record_to_example: Callable[[Record], Any] | None = None,
        record_to_pair: Callable[[Any], Any] | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        max_shard_size: int | str | None = None,
        graph: bool | None = None,
    ) -> Any:
        """A tf.data.Dataset of what `record_to_pair` gives; with `path`, TFRecord files of `record_to_example`.

        Without `path` nothing is stored. With it, the files appear when all are complete, and are returned. `path`
        is a file, a template such as `train-{}.record`, or a function that gives names; no file is larger than
        `max_shard_size`, but one of a single record. Where that makes several files of one name, they are
        `train.record-00000-of-00003` and so on. Functions get the converted record where there are conversions.
        `graph` as `Source.dataset` takes it: whether `record_to_pair` is traced.
        """
        if path:
            _check_path(path)
            check_effect("record_to_pair", record_to_pair, "with path=", "files are made by record_to_example=")
            _refuse_with_path(output_types=output_types, output_shapes=output_shapes, graph=graph)
        else:
            check_effect("record_to_example", record_to_example, "without path=", "a dataset takes record_to_pair=")
            check_effect("max_shard_size", max_shard_size, "without path=", "it is about files; leave it out")
        source = self.source(template)
        if path:
            return source.write_files(path, self._to_example(record_to_example), max_shard_size)
        return source.dataset(
            self._to_pair(record_to_pair),
            output_types=output_types,
            output_shapes=output_shapes,
            label_is_number=True,
            graph=graph,
        )

    @known_options
    def load(
        self,
        template: Locations,
        output_types: Any = None,
        output_shapes: Any = None,
        path: Any = None,
        max_shard_size: int | str | None = None,
        num_workers: int | None = None,
        record_to_example: Callable[[Record], Any] | None = None,
        remote_exec: bool | None = None,
        shuffle_tar: bool = False,
        graph: bool | None = None,
    ) -> Any:
        """What `conversions` and `selections` make of the records, as a dataset; with `path`, record files of it.

        `shuffle_tar` reads the shards in another order each time, their records in order; `num_workers` is how many
        mappings run at once. `remote_exec=True` lets an ETL of the cluster do it (see `cluster.etl`), None where one
        of this definition runs, False never; `executed` says which it was, and why. `graph` as `Source.dataset` takes
        it: whether conversions and selections are traced.
        """
        from ais_tar2tf.cluster.remote import Leaves, in_memory, payloads, source_of

        if path:
            _check_path(path)
            _refuse_with_path(output_types=output_types, output_shapes=output_shapes, graph=graph)
        else:
            check_effect("record_to_example", record_to_example, "without path=", "say what comes by selections=")
            check_effect("max_shard_size", max_shard_size, "without path=", "it is about files; leave it out")
        choice = self._choose(remote_exec, record_to_example, files=bool(path))
        if path:
            chosen = self._in_another_order(template) if shuffle_tar else template
            if choice.etl is not None:
                shards, account = self._through(choice.etl, chosen), Account(self._on_error)
                return write_payloads(path, payloads(shards, account), max_shard_size)
            return self.load_from_tar(
                chosen, path=path, record_to_example=record_to_example, max_shard_size=max_shard_size
            )
        options: dict[str, Any] = {
            "output_types": output_types,
            "output_shapes": output_shapes,
            "shuffle": Shuffle(window=1, shards=1) if shuffle_tar else None,
            "parallel": num_workers,
            "label_is_number": True,
            "graph": graph,
        }
        if choice.etl is not None:
            source = source_of(self._through(choice.etl, template), self._on_error)
            return in_memory(source, Leaves.of(self._pipeline), **options)
        return self.source(template).dataset(self._to_pair(None), **options)

    def transformer(
        self, record_to_example: Callable[[Record], Any] | None = None, *, files: bool = False
    ) -> Transformer:
        """What `load(remote_exec=…)` looks for among a cluster's ETLs; `files`: for `load(path=…)`."""
        from ais_tar2tf.cluster.etl import Transformer

        return Transformer.of(self._definition(record_to_example, files=files))

    def _definition(self, record_to_example: Callable[[Record], Any] | None, *, files: bool) -> Definition:
        from ais_tar2tf.cluster.etl.definition import Definition
        from ais_tar2tf.cluster.remote import Leaves

        if self._on_error != "raise" or self._read.allow_missing_end or self._read.allow_concatenated:
            raise SchemaError("an ETL takes shards as they should be: on_error='raise', and no allow_… options")
        conversions = () if self._pipeline is None else self._pipeline.conversions
        selections = () if self._pipeline is None else self._pipeline.selections
        if files:
            return Definition.of(conversions, selections, record_to_example, "tfrecord", self._shards.grouping)
        return Leaves.of(self._pipeline).definition(conversions, self._shards.grouping)

    def _choose(
        self, remote_exec: bool | None, record_to_example: Callable[[Record], Any] | None, *, files: bool
    ) -> Choice:
        from ais_tar2tf.cluster.remote import choose

        choice = choose(
            lambda: self._definition(record_to_example, files=files),
            remote_exec,
            endpoint=self._endpoint,
            token=self._token,
            tls=self._read.tls,
        )
        self.executed = choice.said
        _log.info("%r works %s", self, choice.said)
        return choice

    def _through(self, etl: str, template: Locations) -> Shards:
        """The shards as an ETL gives them."""
        names = self._names(template)
        store = AisStore(
            self._bucket, self._read, endpoint=self._endpoint, token=self._token, provider=self._provider, etl=etl
        )
        return replace(self._shards, store=store, names=names)

    def _in_another_order(self, template: Locations) -> list[str]:
        found = list(self._names(template))
        random.shuffle(found)
        return list(map(escape, found))

    def _to_pair(self, given: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """What a dataset maps: a function given, behind the conversions; the pipeline; or the default."""
        if self._pipeline is None:
            return given or default_record_to_pair
        if given is None:
            return self._pipeline.as_mapping()
        converted = Pipeline(self._pipeline.conversions).as_mapping()

        def mapped(record: Any) -> Any:
            return given(converted(record))

        return mapped

    def _to_example(self, given: Callable[[Record], Any] | None) -> Callable[[Record], Any]:
        """The same for record files, where a pipeline without a function has to give a dict."""
        pipeline = self._pipeline
        if pipeline is None:
            return given or default_record_to_example
        return pipeline if given is None else lambda record: given(pipeline.convert(record))


def _check_path(path: Any) -> None:
    """Refuse a function of records where one that gives names stands: `path` is the second parameter."""
    if callable(path) and takes_an_argument(path):
        raise OptionTypeError(
            "path= is a file, a template, or a function without parameters that gives names; a function of a record "
            "is record_to_pair= (for a dataset), or record_to_example= (for files, beside path=)"
        )


def _refuse_with_path(**options: Any) -> None:
    """Refuse options of a dataset where files are written."""
    for name, value in options.items():
        if value is not None:
            raise OptionError(f"{name}= is about a dataset, and with path= none is made: leave it out")
