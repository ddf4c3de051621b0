"""TorNet at run time and its building, in one call each. tensorflow_datasets is imported when one is called."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.tornet.catalog import Missing

__all__ = ["build", "builder", "data_source", "load"]


def _tfds() -> Any:
    """tensorflow_datasets, with `tornet` registered."""
    try:
        tfds: Any = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tornet") from error
    importlib.import_module("ais_tar2tf.tornet.tornet_dataset_builder")  # registers it
    return tfds


def builder(*, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """The TFDS builder of TorNet: `tfds.builder("tornet")`, whose options it takes beside `Builder`'s own."""
    return _tfds().builder("tornet", data_dir=data_dir, **options)


def build(
    root: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    file_format: str = "array_record",
    encoding: str = "zlib",
    workers: int | None = None,
    missing: Missing = "error",
    progress: bool | None = None,
    num_shards: int | None = None,
) -> Any:
    """Rewrite what lies at `root` (TORNET_ROOT) into record files at `data_dir` (TFDS_DATA_DIR); gives the builder.

    A second call goes on where an interrupted one was; `Builder` says what the options mean.
    """
    tfds = _tfds()
    root = root or os.environ.get("TORNET_ROOT")
    if root is None:
        raise SchemaError("say where TorNet lies: root=…, or the environment variable TORNET_ROOT")
    made = builder(
        data_dir=data_dir,
        file_format=file_format,
        encoding=encoding,
        workers=workers,
        missing=missing,
        progress=progress,
    )
    config = tfds.download.DownloadConfig(manual_dir=os.fspath(root), num_shards=num_shards)
    made.download_and_prepare(download_config=config)
    return made


def data_source(split: Any = None, *, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Random access in either format, without TensorFlow: `tornet.data_source("train-2015")[5]`."""
    return builder(data_dir=data_dir, **options).as_data_source(split)


def load(
    splits: str | Sequence[str] | None = None,
    *,
    split: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """`tfds.load("tornet", …)`, which calls `splits` `split`: a list of tf.data.Datasets, one for each.

    A data set that is not built yet is built from TORNET_ROOT. ArrayRecord files are read, too.
    """
    if splits is not None and split is not None:
        raise SchemaError("splits and split are two names of one thing: give one of them")
    tfds = _tfds()
    if "TORNET_ROOT" in os.environ and "download_and_prepare_kwargs" not in options:
        config = tfds.download.DownloadConfig(manual_dir=os.environ["TORNET_ROOT"])
        options["download_and_prepare_kwargs"] = {"download_config": config}
    chosen = split if splits is None else splits if isinstance(splits, str) else list(splits)
    return tfds.load("tornet", split=chosen, data_dir=data_dir, **options)
