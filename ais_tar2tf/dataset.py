"""AisDataset: the documented client. It owns the defaults and composes what is below."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.cache import aligned, cached, shelf_of
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.export import Paths
from ais_tar2tf.mapping import default_record_to_example, default_record_to_pair
from ais_tar2tf.ops import Pipeline
from ais_tar2tf.options import Cache, Limits, Retry, Shuffle, Timeouts, Tls
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record
from ais_tar2tf.source import Source, read_options, shard_names
from ais_tar2tf.stores import TokenSource, remember
from ais_tar2tf.stores.ais import AisStore

__all__ = ["AisDataset"]

Template = str | Sequence[str]

_SPECIAL = re.compile(r"([\\{}*?\[\],])")  # what a template would not take for itself


class AisDataset:
    """Tar shards of one bucket as TensorFlow datasets, or as TFRecord files.

    The endpoint is `proxy_url`, else AIS_ENDPOINT; the token `token` (text, or a function that gives one), else
    AIS_AUTHN_TOKEN, else the file that AIS_AUTHN_TOKEN_FILE names. `conversions` and
    `selections` (see `ops`) say what becomes of every record, where no function of yours does.
    """

    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        *,
        token: TokenSource | None = None,
        provider: str = "ais",
        conversions: Sequence[Any] = (),
        selections: Sequence[Any] = (),
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

    def source(self, template: Template) -> Source:
        """The shards that a template names, with everything that a Source can do."""
        names = shard_names(self._store, template, self._read.limits, listable=True)
        account = Account(self._on_error)
        store = self._store if self._cache is None else cached(self._store, self._cache, account, self._shelf)
        return Source(replace(self._shards, store=store, names=names), account)

    def load_from_tar(
        self,
        template: Template,
        path: Paths | None = None,
        record_to_example: Callable[[Record], Any] | None = None,
        record_to_pair: Callable[[Any], Any] | None = None,
        output_types: Any = None,
        output_shapes: Any = None,
        max_shard_size: int | str | None = None,
    ) -> Any:
        """A tf.data.Dataset of what `record_to_pair` gives; with `path`, TFRecord files of `record_to_example`.

        Without `path` nothing is stored. With it, the files appear when all are complete, and are returned. `path`
        is a file, a template such as `train-{}.record`, or a function that gives names; no file is larger than
        `max_shard_size`, but one of a single record. Functions get the converted record where there are conversions.
        """
        source = self.source(template)
        if path:
            return source.write_files(path, self._to_example(record_to_example), max_shard_size)
        return source.dataset(
            self._to_pair(record_to_pair),
            output_types=output_types,
            output_shapes=output_shapes,
            label_is_number=True,
        )

    def load(
        self,
        template: Template,
        output_types: Any = None,
        output_shapes: Any = None,
        path: Any = None,
        max_shard_size: int | str | None = None,
        num_workers: int | None = None,
        record_to_example: Callable[[Record], Any] | None = None,
        remote_exec: bool | None = None,
        shuffle_tar: bool = False,
    ) -> Any:
        """What `conversions` and `selections` make of the records, as a dataset; with `path`, record files of it.

        `shuffle_tar` reads the shards in another order each time, their records in order; `num_workers` is how many
        mappings run at once. What is done here is done on this machine: `remote_exec=True` is refused.
        """
        if remote_exec:
            raise SchemaError("remote_exec=True: conversions run on this machine here; leave it out")
        if path:
            chosen = self._in_another_order(template) if shuffle_tar else template
            return self.load_from_tar(
                chosen, path=path, record_to_example=record_to_example, max_shard_size=max_shard_size
            )
        return self.source(template).dataset(
            self._to_pair(None),
            output_types=output_types,
            output_shapes=output_shapes,
            shuffle=Shuffle(window=1, shards=1) if shuffle_tar else None,
            parallel=num_workers,
            label_is_number=True,
        )

    def _in_another_order(self, template: Template) -> list[str]:
        found = list(shard_names(self._store, template, self._read.limits, listable=True))
        random.shuffle(found)
        return [_SPECIAL.sub(r"\\\1", name) for name in found]

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
