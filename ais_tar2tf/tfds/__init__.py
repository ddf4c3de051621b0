"""Any shards as a TFDS data set: `t2t.tfds.builder`. TFDS is imported when it is called (extra `tfds`)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.locations import Locations, location_text, location_texts
from ais_tar2tf.records import Record

__all__ = ["builder"]


def __dir__() -> list[str]:
    return sorted(__all__)


_SAMPLE = 64  # records of each split that tell the features: what a schema of a source is taken from, too
_SPLIT = "train"  # the only one, where none are named


def builder(
    name: str,
    urls: Locations | None = None,
    *,
    splits: Mapping[str, Locations] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    file_format: str = "array_record",
    version: str = "1.0.0",
    schema: Any = None,
    sample: int | None = _SAMPLE,
    map: Callable[[Record], Mapping[str, Any]] | None = None,  # noqa: A002  # as `dataset` calls it
    fields: Sequence[str] | None = None,
    shard_size: int | str | None = "100MB",
    shard_records: int | None = None,
    supervised_keys: tuple[str, str] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    """A TFDS builder over tar shards; `download_and_prepare()` writes them, in one of both formats.

    `urls` is a template when there are no `splits`; otherwise each split has its own, which begins with a scheme or a
    slash, or goes on from `urls`. Features are found out of the first `sample` records of each split (all of them:
    None), or said by `schema`; `map` makes a dict of each record before. `options` are those of `t2t.open`.

        made = t2t.tfds.builder("imagenet", "ais://imagenet", splits={"train": "train-{000..146}.tar"})
        made.download_and_prepare()
        made.as_data_source("train")[-1]
        made.as_dataset("train")
    """
    try:
        tfds: Any = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tfds") from error
    from ais_tar2tf.export.boundaries import bounds_of
    from ais_tar2tf.source import open_source
    from ais_tar2tf.tfds._shards_builder import ShardsBuilder

    named = _named(urls, splits)
    members = {"name": name, "VERSION": tfds.core.Version(version), "__module__": ShardsBuilder.__module__}
    of_this_name: Any = type(name, (ShardsBuilder,), members, skip_registration=True)
    return of_this_name(
        sources={split: open_source(template, fields=fields, **options) for split, template in named.items()},
        schema=schema,
        sample=sample,
        prepare=map,
        bounds=bounds_of(shard_size if shard_records is None else None, shard_records),
        supervised_keys=supervised_keys,
        progress=progress,
        data_dir=data_dir,
        file_format=file_format,
    )


def _named(urls: Locations | None, splits: Mapping[str, Locations] | None) -> dict[str, Locations]:
    """The templates of each split."""
    if not splits:
        if urls is None:
            raise SchemaError("say where the shards are: a template, or splits={'train': template, …}")
        return {_SPLIT: urls}
    if urls is not None and not isinstance(urls, str | os.PathLike):
        raise SchemaError("with splits, the URL is one text that their templates go on from")
    base = None if urls is None else location_text(urls)
    return {
        split: [_from(base, template) for template in location_texts(templates)]
        for split, templates in splits.items()
    }


def _from(base: str | None, template: str) -> str:
    if base is None or "://" in template or template.startswith(("/", "~/")):
        return template
    return f"{base.rstrip('/')}/{template}"
