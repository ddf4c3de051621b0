"""AisDataset: the documented client. It owns the defaults and composes what is below."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ais_tar2tf.account import OnError
from ais_tar2tf.export import write_tfrecord
from ais_tar2tf.mapping import default_record_to_example, default_record_to_pair, mapping_error, wants
from ais_tar2tf.options import Limits, Retry, Timeouts, Tls
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record
from ais_tar2tf.source import Source, read_options, shard_names
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.stores.ais import AisStore

__all__ = ["AisDataset"]

Template = str | Sequence[str]


class AisDataset:
    """Tar shards of one bucket as TensorFlow datasets, or as TFRecord files.

    The endpoint is `proxy_url`, else AIS_ENDPOINT; the token `token` (text, or a function that gives one), else
    AIS_AUTHN_TOKEN, else the file that AIS_AUTHN_TOKEN_FILE names.
    """

    def __init__(
        self,
        bucket: str,
        proxy_url: str | None = None,
        *,
        token: TokenSource | None = None,
        provider: str = "ais",
        grouping: Grouping = "first-dot",
        on_error: OnError = "raise",
        limits: Limits | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        connections: int | None = None,
        tls: Tls | None = None,
        allow_missing_end: bool = False,
        allow_concatenated: bool = False,
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
        self._store = AisStore(bucket, self._read, endpoint=proxy_url, token=token, provider=provider)
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
        path: str | os.PathLike[str] | None = None,
        record_to_example: Callable[[Record], Any] = default_record_to_example,
        record_to_pair: Callable[[Any], Any] = default_record_to_pair,
        output_types: Any = None,
        output_shapes: Any = None,
    ) -> Any:
        """A tf.data.Dataset of what `record_to_pair` gives; with `path`, a TFRecord file of `record_to_example`.

        Without `path` nothing is stored. With it, the file appears when it is complete, and the files written
        are returned.
        """
        source = self.source(template)
        if path:
            return [_write_file(source, path, record_to_example)]
        return source.dataset(
            record_to_pair, output_types=output_types, output_shapes=output_shapes, label_is_number=True
        )


def _write_file(source: Source, path: str | os.PathLike[str], record_to_example: Callable[[Record], Any]) -> str:
    selection = wants(record_to_example)
    chosen = source.select(*selection.wants) if selection is not None else source
    write_tfrecord(path, _examples(chosen, record_to_example))
    return os.fspath(path)


def _examples(source: Source, record_to_example: Callable[[Record], Any]) -> Iterator[bytes]:
    records = source.records()
    for record in records:
        try:
            payload = _serialized(record_to_example(record))
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises
            source.skip_or_raise(mapping_error(error, record))
            continue
        yield payload


def _serialized(example: Any) -> bytes:
    """A tf.train.Example, its bytes, or a dict of values, as bytes."""
    from ais_tar2tf import features

    if isinstance(example, bytes):
        return example
    if isinstance(example, dict):
        return features.encode(example)
    if hasattr(example, "SerializeToString"):
        return example.SerializeToString()
    raise TypeError(
        f"record_to_example returned {type(example).__name__}; a tf.train.Example, its bytes or a dict is expected"
    )
