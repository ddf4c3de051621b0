"""TorNet in tar shards: netCDF files are packed unchanged, and streamed as samples without building."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.urls.locations import Location, Locations, location_text
from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.tornet.catalog import Missing, evenly_divided, read_catalog
from ais_tar2tf.tornet.layout import FEATURES
from ais_tar2tf.tornet.sample import read_sample

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["pack", "stream"]

FIELD = "nc"


def pack(
    root: str | os.PathLike[str],
    url: Location,
    *,
    shards: int | None = None,
    shard_size: int | str = "100MB",
    missing: Missing = "error",
    **options: Any,
) -> list[str]:
    """Pack the samples of TorNet into tar shards.

    The samples are in a fixed random order, so that each shard is a random sample of its split.

    Args:
        root: The folder with catalog.csv and the netCDF files.
        url: The folder or URL of the shards.
        shards: The number of shards of each split, or fewer where a split has fewer samples. With 10, a split becomes
            `train-2015-00.tar` to `train-2015-09.tar`.
        shard_size: The largest size of a shard, if `shards` is not given.
        missing: "error", or "skip" to leave out files that the catalog lists and that are absent.
        **options: Options of `t2t.pack`.

    Returns:
        The URLs of the shards.

    Raises:
        ShardNotFound: catalog.csv or a listed file is absent.
        SchemaError: catalog.csv is malformed.

    Example:
        tornet.pack("tornet/", "ais://tornet", shards=10)
    """
    from ais_tar2tf.recordfiles.packing.packer import pack as pack_records

    root, base_url = Path(location_text(root)), location_text(url).rstrip("/")
    packed: list[str] = []
    for split, files in read_catalog(root, missing=missing).items():
        if shards is None:
            packed += pack_records(
                _records(root, files), f"{base_url}/{split}-{{:03d}}.tar", shard_size=shard_size, **options
            )
            continue
        for number, part in enumerate(evenly_divided(files, min(shards, len(files)))):
            target = f"{base_url}/{split}-{number:0{len(str(shards))}d}.tar"
            packed += pack_records(_records(root, part), target, shard_size=None, **options)
    return packed


def _records(root: Path, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in files:
        yield {"__key__": str(PurePosixPath(name).with_suffix("")), FIELD: (root / name).read_bytes()}


def _sample_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the features of a sample from a record of a shard.

    Raises:
        MappingError: The record is no TorNet sample. The error names the record.
    """
    try:
        return read_sample(record[FIELD])
    except SchemaError as error:
        shard, key = record.get("__shard__", ""), record.get("__key__", "")
        raise MappingError(str(error), shard=str(shard), key=str(key)) from error


def stream(urls: Locations, *, features: Sequence[str] | None = None, **options: Any) -> ShardDataset:
    """Return a dataset of samples from tar shards, with the same elements as the TFDS data set.

    Args:
        urls: A template of shards, or a list of templates.
        features: The features to return; by default all.
        **options: Options of `t2t.open` and of `Source.dataset`, such as `shuffle`, `shard` or `batch`.

    Returns:
        A tf.data.Dataset of dicts of tensors.

    Raises:
        SchemaError: `features` names an unknown feature.

    Example:
        tornet.stream("ais://tornet/train-2015-{00..09}.tar", shuffle=True).map(tornet.pair())
    """
    from ais_tar2tf.source.opening import OpenKeywords, open_source

    names = tuple(FEATURES) if features is None else tuple(features)
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise SchemaError(f"TorNet has no feature {unknown[0]!r}; there are: {', '.join(FEATURES)}")

    def selected(record: dict[str, Any]) -> dict[str, Any]:
        all_features = _sample_of(record)
        return {name: all_features[name] for name in names}

    open_options = {name: options.pop(name) for name in OpenKeywords.__annotations__ if name in options}
    source = open_source(urls, **open_options).select(FIELD)
    types = {name: FEATURES[name][1] for name in names}
    return source.dataset(
        selected, output_types=types, output_shapes={name: FEATURES[name][0] for name in names}, **options
    )
