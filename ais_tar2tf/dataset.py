"""AisDataset: the documented client. It owns the defaults and composes what is below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ais_tar2tf.account import OnError
from ais_tar2tf.export import Paths
from ais_tar2tf.mapping import default_record_to_example, default_record_to_pair
from ais_tar2tf.options import Limits, Retry, Timeouts
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record
from ais_tar2tf.source import Source, read_options, shard_names
from ais_tar2tf.stores import remember
from ais_tar2tf.stores.ais import AisStore

__all__ = ["AisDataset"]

Template = str | Sequence[str]


class AisDataset:
    """Tar shards of one bucket as TensorFlow datasets, or as TFRecord files.

    The endpoint is `proxy_url`, else AIS_ENDPOINT; the token `token`, else AIS_AUTHN_TOKEN.
    """

    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        *,
        token: str | None = None,
        provider: str = "ais",
        grouping: Grouping = "first-dot",
        on_error: OnError = "raise",
        limits: Limits | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        connections: int | None = None,
        allow_missing_end: bool = False,
    ) -> None:
        self._read = read_options(
            timeouts=timeouts,
            retry=retry,
            limits=limits,
            connections=connections,
            allow_missing_end=allow_missing_end,
        )
        store = partial(AisStore, bucket, self._read, endpoint=proxy_url, token=token, provider=provider)
        self._store = store()
        remember(self._store, store)
        self._shards = Shards(self._store, (), self._read, grouping)
        self._on_error: OnError = on_error

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
        return Source(replace(self._shards, names=names), on_error=self._on_error)

    def load_from_tar(
        self,
        template: Template,
        path: Paths | None = None,
        record_to_example: Callable[[Record], Any] = default_record_to_example,
        record_to_pair: Callable[[Any], Any] = default_record_to_pair,
        output_types: Any = None,
        output_shapes: Any = None,
        max_shard_size: int | str | None = None,
    ) -> Any:
        """A tf.data.Dataset of what `record_to_pair` gives; with `path`, TFRecord files of `record_to_example`.

        Without `path` nothing is stored. With it, the files appear when all are complete, and are returned. `path`
        is a file, a template such as `train-{}.record`, or a function that gives names; no file is larger than
        `max_shard_size`, but one of a single record.
        """
        source = self.source(template)
        if path:
            return source.write_files(path, record_to_example, max_shard_size)
        return source.dataset(
            record_to_pair, output_types=output_types, output_shapes=output_shapes, label_is_number=True
        )
