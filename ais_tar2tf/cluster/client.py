"""`AisDataset`, the client of one bucket, which makes datasets, record files and sources from the bucket's shards.

This module must not read shards by another path than `source`, except through an ETL of the cluster (`remote.py`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ais_tar2tf.base.completion import Completed
from ais_tar2tf.base.monitoring.stats import Account, OnError
from ais_tar2tf.base.nearest import known_options, takes_an_argument
from ais_tar2tf.base.shared_options import takes_options_of
from ais_tar2tf.base.urls.locations import Location, Locations, location_text, location_texts, shown_location
from ais_tar2tf.base.urls.templates import escape
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError, TemplateError
from ais_tar2tf.ops import Pipeline
from ais_tar2tf.options import Cache, Shuffle, check_effect
from ais_tar2tf.recordfiles.export import Paths, write_files, write_payloads
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source
from ais_tar2tf.source.dataset_options import DatasetKeywords
from ais_tar2tf.source.index_lookup import IndexLookup
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.opening import OpenOptions, ReaderKeywords
from ais_tar2tf.stores import Access, TokenSource, remember_opener
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.cache import block_cache_for, cached
from ais_tar2tf.streams.naming import shard_names
from ais_tar2tf.streams.reader import ReadSession, Shards
from ais_tar2tf.values.default_mappings import default_record_to_example, default_record_to_pair

if TYPE_CHECKING:
    from ais_tar2tf.cluster.etl.definition import Definition
    from ais_tar2tf.cluster.etl.transformer import Transformer
    from ais_tar2tf.cluster.remote import ExecutionPlace

__all__ = ["AisDataset"]

_log = logging.getLogger("ais_tar2tf")


class AisDataset(Completed):
    """The tar shards of one bucket in AIStore, from which datasets and TFRecord files are made.

    Attributes:
        executed: A text that tells whether the latest `load` converts the records in this process or in the cluster,
            and why.
    """

    @known_options
    @takes_options_of(OpenOptions, ReaderKeywords)
    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        *,
        token: TokenSource | None = None,
        provider: str = "ais",
        conversions: Sequence[Any] = (),
        selections: Any = (),
        **options: Unpack[ReaderKeywords],
    ) -> None:
        """Set the bucket, and how its shards are read. No request is sent.

        Args:
            bucket: The name of the bucket, or its URL without a path.
            proxy_url: The URL of the AIStore proxy. Default: AIS_ENDPOINT.
            token: An AuthN token, or a function that returns a token. The function is called again when the cluster
                refuses its token. Default: AIS_AUTHN_TOKEN, or the content of the file that AIS_AUTHN_TOKEN_FILE
                names.
            provider: `"ais"` if the cluster itself holds the bucket. Otherwise the cloud from which the cluster reads
                the bucket, such as `"aws"`.
            conversions: Ops or functions that convert every record, one after the other (see `t2t.ops`).
            selections: Ops or names of fields. They select the values of an element from a converted record.
            **options: See `OpenOptions`.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            StoreError: No endpoint is given, or it is no URL.
        """
        given = OpenOptions(endpoint=proxy_url, token=token, **options)
        self._read = given.read
        self.executed: str = "here"
        bucket = bucket.removeprefix(f"{provider}://").rstrip("/")
        self._bucket, self._endpoint, self._token = bucket, proxy_url, token
        self._open = partial(AisStore, bucket, self._read, endpoint=proxy_url, token=token, provider=provider)
        self._store = self._open()
        remember_opener(self._store, self._open)
        cache = given.cache
        self._cache = Cache(cache) if cache is not None and not isinstance(cache, Cache) else cache
        self._block_cache = block_cache_for(self._cache) if self._cache is not None else None
        self._shards = Shards(self._store, (), self._read, given.grouping)
        self._session = ReadSession(self._shards)
        self._on_error: OnError = given.on_error
        self._pipeline = Pipeline(conversions, selections) if conversions or selections else None

    def __repr__(self) -> str:
        return f"AisDataset({self._store!r})"

    def __enter__(self) -> AisDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close all open streams, and the connections that are kept for further requests."""
        self._session.close()

    def source(self, template: Locations) -> Source:
        """Open shards of the bucket as a source, which has more methods than this class.

        Args:
            template: A template, a `prefix/`, a glob, or a list of these. Each is a name within the bucket, or a URL
                of the bucket.

        Returns:
            A `Source`, as `t2t.open` returns it.

        Raises:
            TemplateError: The template cannot be read, or names another bucket.
            ShardNotFound: A prefix or a glob has no shards.
            StoreError: The bucket cannot be listed.
        """
        account = Account(self._on_error)
        names = self._names(template, account)
        store = self._store if self._cache is None else cached(self._store, self._cache, account, self._block_cache)
        shards = replace(self._shards, store=store, names=names)
        return Source(
            OpenedShards(
                session=self._session.over(shards),
                index=IndexLookup(shards),
                account=account,
                access=Access("ais", self._endpoint, self._token),
            )
        )

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
        """Make a tf.data.Dataset of pairs. With `path`, write TFRecord files instead.

        The files appear under their names when all of them are complete. If the client has `conversions`, then
        `record_to_example` and `record_to_pair` get converted records.

        Args:
            template: The shards, as `source` takes them.
            path: A file, a template such as `train-{}.record`, or a function without parameters that returns names.
                If one name is given and several files are needed, they are named `train.record-00000-of-00003` and
                so on.
            record_to_example: A function of a record that returns a tf.train.Example, for files. Default:
                `t2t.default_record_to_example`.
            record_to_pair: A function of a record that returns an element of the dataset. Default:
                `t2t.default_record_to_pair`.
            output_types: The types that `record_to_pair` returns, if it runs as Python.
            output_shapes: The shapes that `record_to_pair` returns, if it runs as Python.
            max_shard_size: The largest size of a file, as a number of bytes or a text such as `"100MB"`. A single
                larger record gets a file for itself.
            graph: Whether `record_to_pair` is traced; see `Source.dataset`.

        Returns:
            The dataset; with `path`, the list of files.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            TemplateError: The template cannot be read, or names another bucket.
            StoreError: A shard cannot be read.
            ArchiveError: A shard is damaged.
            SchemaError: `record_to_pair` has to run as Python, and its output types are not given.
            ExportError: A file cannot be written.
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
            shards, account = source.opened.shards, source.opened.account
            return write_files(
                shards, self._on_error, account, path, self._to_example(record_to_example), max_shard_size
            )
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
        """Make a dataset of the selected values of converted records. With `path`, write TFRecord files instead.

        The records are converted by the `conversions` of the client, and its `selections` select the values.

        Args:
            template: The shards, as `source` takes them.
            output_types: The types of the selections, if they run as Python.
            output_shapes: The shapes of the selections, if they run as Python.
            path: As `load_from_tar` takes it.
            max_shard_size: As `load_from_tar` takes it.
            num_workers: The number of mappings of a dataset that run at once. With `path`, it has no effect.
            record_to_example: As `load_from_tar` takes it.
            remote_exec: True: an ETL of the cluster converts the records (see `transformer`). False: this process
                converts them. Default: the ETL if it runs, otherwise this process. The attribute `executed` tells
                the decision and its reason.
            shuffle_tar: Whether to read the shards in another order each time. The order of the records in a shard
                stays the same.
            graph: Whether conversions and selections are traced; see `Source.dataset`.

        Returns:
            The dataset; with `path`, the list of files.

        Raises:
            OptionError: An option has a wrong value, or no effect.
            TemplateError: The template cannot be read, or names another bucket.
            StoreError: A shard cannot be read; or `remote_exec` is True, and the ETL does not run.
            ArchiveError: A shard is damaged.
            SchemaError: The selections have to run as Python, and their output types are not given.
            ExportError: A file cannot be written.
        """
        from ais_tar2tf.cluster.remote import Leaves, converted, payloads

        if path:
            _check_path(path)
            _refuse_with_path(output_types=output_types, output_shapes=output_shapes, graph=graph)
        else:
            check_effect("record_to_example", record_to_example, "without path=", "say what comes by selections=")
            check_effect("max_shard_size", max_shard_size, "without path=", "it is about files; leave it out")
        place = self._execution_place(remote_exec, record_to_example, files=bool(path))
        if path:
            chosen = self._shuffled(template) if shuffle_tar else template
            if place.etl is not None:
                shards, account = self._converted_by(place.etl, chosen), Account(self._on_error)
                return write_payloads(path, payloads(shards, account), max_shard_size)
            return self.load_from_tar(
                chosen, path=path, record_to_example=record_to_example, max_shard_size=max_shard_size
            )
        options: DatasetKeywords = {
            "output_types": output_types,
            "output_shapes": output_shapes,
            "shuffle": Shuffle(window=1, shards=1) if shuffle_tar else None,
            "parallel": num_workers,
            "label_is_number": True,
            "graph": graph,
        }
        if place.etl is not None:
            session = self._session.over(self._converted_by(place.etl, template))
            return converted(session, self._on_error, Leaves.from_pipeline(self._pipeline), **options)
        return self.source(template).dataset(self._to_pair(None), **options)

    def transformer(
        self, record_to_example: Callable[[Record], Any] | None = None, *, files: bool = False
    ) -> Transformer:
        """Return the transformer of the ETL that `load` looks for in the cluster.

        The transformer is the program of an ETL. It converts records as this client would.

        Args:
            record_to_example: As `load` takes it.
            files: Whether to return the transformer for `load(path=…)`, which makes record files.

        Returns:
            The transformer, which `cluster.etl.start` can start.

        Raises:
            SchemaError: An ETL cannot do the work of this client. For example, an ETL cannot skip errors, nor run a
                function that has no name.
        """
        from ais_tar2tf.cluster.etl import Transformer

        return Transformer.of(self._definition(record_to_example, files=files))

    def _names(self, template: Locations, account: Account | None = None) -> Sequence[str]:
        return shard_names(self._store, location_texts(template, self._within_bucket), self._read.limits, account)

    def _within_bucket(self, location: Location) -> str:
        """Return a location as a template within the bucket. The URL of the whole bucket becomes `**`."""
        text, url = location_text(location), self._store.url("")
        if f"{text}/" == url or text == url:
            return "**"
        if "://" in text and not text.startswith(url):
            raise TemplateError(
                f"{shown_location(text)} is not in the bucket {self._bucket!r}, whose shards are read here; t2t.open "
                "reads any URL"
            )
        return text.removeprefix(url)

    def _definition(self, record_to_example: Callable[[Record], Any] | None, *, files: bool) -> Definition:
        """Return the definition of the ETL that converts records as this client would."""
        from ais_tar2tf.cluster.etl.definition import Definition
        from ais_tar2tf.cluster.remote import Leaves

        if self._on_error != "raise" or self._read.allow_missing_end or self._read.allow_concatenated:
            raise SchemaError("an ETL takes shards as they should be: on_error='raise', and no allow_… options")
        conversions = () if self._pipeline is None else self._pipeline.conversions
        selections = () if self._pipeline is None else self._pipeline.selections
        if files:
            return Definition.of(conversions, selections, record_to_example, "tfrecord", self._shards.grouping)
        return Leaves.from_pipeline(self._pipeline).definition(conversions, self._shards.grouping)

    def _execution_place(
        self, remote_exec: bool | None, record_to_example: Callable[[Record], Any] | None, *, files: bool
    ) -> ExecutionPlace:
        """Decide whether an ETL or this process converts the records, and store the reason in `executed`."""
        from ais_tar2tf.cluster.remote import choose

        place = choose(
            lambda: self._definition(record_to_example, files=files),
            remote_exec,
            endpoint=self._endpoint,
            token=self._token,
            tls=self._read.tls,
        )
        self.executed = place.reason
        _log.info("%r works %s", self, place.reason)
        return place

    def _converted_by(self, etl: str, template: Locations) -> Shards:
        """Return the shards of a template. Their store returns the output of an ETL instead of their bytes."""
        names = self._names(template)
        return replace(self._shards, store=self._open(etl=etl), names=names)

    def _shuffled(self, template: Locations) -> list[str]:
        """Return the names of the shards in a random order, escaped, so that each is a template of this one shard."""
        names = list(self._names(template))
        random.shuffle(names)
        return list(map(escape, names))

    def _to_pair(self, function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """Return the mapping of a dataset: `function` after the conversions, or the pipeline, or the default."""
        if self._pipeline is None:
            return function or default_record_to_pair
        if function is None:
            return self._pipeline.as_mapping()
        converted = Pipeline(self._pipeline.conversions).as_mapping()

        def mapped(record: Any) -> Any:
            return function(converted(record))

        return mapped

    def _to_example(self, function: Callable[[Record], Any] | None) -> Callable[[Record], Any]:
        """Return the mapping of record files: `function` after the conversions, or the pipeline, or the default.

        If the pipeline is the mapping, it must return a dict.
        """
        pipeline = self._pipeline
        if pipeline is None:
            return function or default_record_to_example
        return pipeline if function is None else lambda record: function(pipeline.convert(record))


def _check_path(path: Any) -> None:
    """Refuse a function of a record as `path`: the user has probably confused `path` with another option."""
    if callable(path) and takes_an_argument(path):
        raise OptionTypeError(
            "path= is a file, a template, or a function without parameters that gives names; a function of a record "
            "is record_to_pair= (for a dataset), or record_to_example= (for files, beside path=)"
        )


def _refuse_with_path(**options: Any) -> None:
    """Refuse options of a dataset where files are written. Only None means that an option is not given."""
    for name, value in options.items():
        if value is not None:
            raise OptionError(f"{name}= is about a dataset, and with path= none is made: leave it out")
