"""The function `t2t.tfds.builder`, which makes a TFDS builder over shards.

This module must not import TFDS before the function is called.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ais_tar2tf.base.urls.locations import Locations, location_text, location_texts
from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.records import Record

if TYPE_CHECKING:
    from ais_tar2tf.source.opening import LocatedKeywords

__all__ = ["builder"]

_SAMPLE = 64  # records of each split from which the schema is inferred, as in `Source.schema`
_SPLIT = "train"  # the name of the only split when `splits` is not given


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
    map: Callable[[Record], Mapping[str, Any]] | None = None,  # noqa: A002  # the name that `Source.dataset` uses
    fields: Sequence[str] | None = None,
    shard_size: int | str | None = "100MB",
    shard_records: int | None = None,
    supervised_keys: tuple[str, str] | None = None,
    progress: bool | None = None,
    **options: Unpack[LocatedKeywords],
) -> Any:
    """Make a TFDS builder over tar shards.

    The method `download_and_prepare()` of the builder writes the records to files in a format of TFDS.

    Args:
        name: The name of the data set.
        urls: Without `splits`, the template of the shards. With `splits`, the URL of the folder of all shards.
        splits: The templates of each split. They are appended to `urls`, except for absolute templates, which
            contain "://" or begin with "/" or "~/".
        data_dir: The folder in which TFDS keeps prepared data sets; None takes the default of TFDS.
        file_format: "array_record" or "tfrecord".
        version: The version of the data set.
        schema: The schema of the records; None infers the schema from a sample of the records.
        sample: The number of records of each split from which the schema is inferred; None uses all records.
        map: A function that is applied to each record first, and returns a dict.
        fields: The fields to select.
        shard_size: The largest size of a file.
        shard_records: The largest number of records in a file, instead of `shard_size`.
        supervised_keys: The names of the input and of the label, for `as_supervised=True`.
        progress: Whether to show a progress bar; None shows it in terminals and notebooks.
        **options: Options of `t2t.open`.

    Returns:
        A `tfds.core.DatasetBuilder`.

    Raises:
        SchemaError: Neither `urls` nor `splits` is given, or both are given and `urls` is a list.
        MissingDependency: tensorflow_datasets is not installed.

    Example:
        builder = t2t.tfds.builder("imagenet", "ais://imagenet", splits={"train": "train-{000..146}.tar"})
        builder.download_and_prepare()
        builder.as_data_source("train")[-1]
        builder.as_dataset("train")
    """
    try:
        tfds: Any = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tfds") from error
    from ais_tar2tf.recordfiles.export.boundaries import bounds_of
    from ais_tar2tf.source import open_source
    from ais_tar2tf.tfds.shards_builder import ShardsBuilder

    templates = _templates_of(urls, splits)
    class_attributes = {"name": name, "VERSION": tfds.core.Version(version), "__module__": ShardsBuilder.__module__}
    builder_class: Any = type(name, (ShardsBuilder,), class_attributes, skip_registration=True)
    return builder_class(
        sources={split: open_source(template, fields=fields, **options) for split, template in templates.items()},
        schema=schema,
        sample=sample,
        prepare=map,
        bounds=bounds_of(shard_size if shard_records is None else None, shard_records),
        supervised_keys=supervised_keys,
        progress=progress,
        data_dir=data_dir,
        file_format=file_format,
    )


def _templates_of(urls: Locations | None, splits: Mapping[str, Locations] | None) -> dict[str, Locations]:
    """Return the templates of each split, appended to `urls`."""
    if not splits:
        if urls is None:
            raise SchemaError("say where the shards are: a template, or splits={'train': template, …}")
        return {_SPLIT: urls}
    if urls is not None and not isinstance(urls, str | os.PathLike):
        raise SchemaError("with splits, urls is one URL, to which their templates are appended")
    base = None if urls is None else location_text(urls)
    return {
        split: [_append(base, template) for template in location_texts(templates)]
        for split, templates in splits.items()
    }


def _append(base: str | None, template: str) -> str:
    if base is None or "://" in template or template.startswith(("/", "~/")):
        return template
    return f"{base.rstrip('/')}/{template}"
