"""TorNet as tar shards: its netCDF files packed as they are, and streamed as samples without any rebuild."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.locations import Location, Locations, location_text
from ais_tar2tf.tornet.catalog import Missing, read_catalog, shares
from ais_tar2tf.tornet.layout import FEATURES
from ais_tar2tf.tornet.sample import read_sample

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["pack", "sample_of", "stream"]

FIELD = "nc"
_OF_OPEN = ("endpoint", "token", "on_error", "limits", "retry", "timeouts", "connections")


def pack(
    root: str | os.PathLike[str],
    url: Location,
    *,
    shards: int | None = None,
    shard_size: int | str = "100MB",
    missing: Missing = "error",
    **options: Any,
) -> list[str]:
    """Put the samples below `root` into tar shards below `url`, one series for each split; gives the shards' URLs.

    `shards=10` makes `train-2015-00.tar` to `train-2015-09.tar` of each split (fewer where there are fewer samples);
    otherwise each has `shard_size`.
    Samples are in a fixed random order, so that a shard is a fair draw. `options` as `t2t.pack` takes them.
    """
    from ais_tar2tf.packing.packer import pack as t2t_pack

    root, below = Path(location_text(root)), location_text(url).rstrip("/")
    written: list[str] = []
    for split, files in read_catalog(root, missing=missing).items():
        if shards is None:
            written += t2t_pack(
                _records(root, files), f"{below}/{split}-{{:03d}}.tar", shard_size=shard_size, **options
            )
            continue
        for number, share in enumerate(shares(files, min(shards, len(files)))):
            target = f"{below}/{split}-{number:0{len(str(shards))}d}.tar"
            written += t2t_pack(_records(root, share), target, shard_size=None, **options)
    return written


def _records(root: Path, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in files:
        yield {"__key__": str(PurePosixPath(name).with_suffix("")), FIELD: (root / name).read_bytes()}


def sample_of(record: dict[str, Any]) -> dict[str, Any]:
    """The features of a sample, out of a record of such a shard; `stream` maps it."""
    try:
        return read_sample(record[FIELD])
    except SchemaError as error:
        shard, key = record.get("__shard__", ""), record.get("__key__", "")
        raise MappingError(str(error), shard=str(shard), key=str(key)) from error


def stream(urls: Locations, *, features: Sequence[str] | None = None, **options: Any) -> ShardDataset:
    """A tf.data.Dataset of samples right from tar shards: the same elements as TFDS gives of the rebuilt data.

    `features`: only these; `options` as `t2t.open` and its `dataset` take them (`shuffle`, `shard`, `batch` …).

        tornet.stream("ais://tornet/train-2015-{00..09}.tar", shuffle=True).map(tornet.pair())
    """
    from ais_tar2tf.source import open_source

    chosen = tuple(FEATURES) if features is None else tuple(features)
    unknown = [name for name in chosen if name not in FEATURES]
    if unknown:
        raise SchemaError(f"TorNet has no feature {unknown[0]!r}; there are: {', '.join(FEATURES)}")

    def sample(record: dict[str, Any]) -> dict[str, Any]:
        whole = sample_of(record)
        return {name: whole[name] for name in chosen}

    source = open_source(urls, **{name: options.pop(name) for name in _OF_OPEN if name in options}).select(FIELD)
    types = {name: FEATURES[name][1] for name in chosen}
    return source.dataset(
        sample, output_types=types, output_shapes={name: FEATURES[name][0] for name in chosen}, **options
    )
