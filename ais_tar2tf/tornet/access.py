"""Functions that build and open the TFDS data set `tornet`.

The functions import tensorflow_datasets (TFDS) when they are called. Importing this module must not import TFDS.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.tornet.catalog import Missing

__all__ = ["build", "builder", "data_source", "load"]


def _tfds() -> Any:
    """Import tensorflow_datasets and register `tornet` with it."""
    try:
        tfds: Any = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise MissingDependency("tensorflow_datasets", extra="tornet") from error
    importlib.import_module("ais_tar2tf.tornet.tornet_dataset_builder")  # the import registers `tornet`
    return tfds


def builder(*, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Return the TFDS builder of TorNet, as `tfds.builder("tornet")` does.

    Args:
        data_dir: The folder of prepared data sets; by default TFDS_DATA_DIR.
        **options: Options of `tfds.builder` and of `Builder`.

    Raises:
        MissingDependency: tensorflow_datasets is not installed.
    """
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
    """Rewrite the netCDF files of TorNet as TFDS record files.

    After an interruption, a second call writes only the record files that are not finished.

    Args:
        root: The folder with catalog.csv and the netCDF files; by default TORNET_ROOT.
        data_dir: The folder of prepared data sets; by default TFDS_DATA_DIR.
        file_format: "array_record" or "tfrecord".
        encoding: How radar variables are stored: "zlib", "bytes" or "none".
        workers: The number of processes that write; None uses all cores.
        missing: "error", or "skip" to leave out files that the catalog lists and that are absent.
        progress: Whether to show a progress bar; with None, only terminals and notebooks show it.
        num_shards: The number of record files of each split; if None, it depends on the number of samples.

    Returns:
        The TFDS builder.

    Raises:
        SchemaError: Neither `root` nor TORNET_ROOT is given, or a file is not a TorNet sample.
        ShardNotFound: catalog.csv or a file that it lists is absent.
        ExportError: Writing failed.
        MissingDependency: A package of the extra `tornet` is not installed.

    Example:
        tornet.build("tornet/", "tfds/").as_data_source("train-2015")
    """
    tfds = _tfds()
    root = root or os.environ.get("TORNET_ROOT")
    if root is None:
        raise SchemaError("say where TorNet is: root=…, or the environment variable TORNET_ROOT")
    tornet_builder = builder(
        data_dir=data_dir,
        file_format=file_format,
        encoding=encoding,
        workers=workers,
        missing=missing,
        progress=progress,
    )
    config = tfds.download.DownloadConfig(manual_dir=os.fspath(root), num_shards=num_shards)
    tornet_builder.download_and_prepare(download_config=config)
    return tornet_builder


def data_source(split: Any = None, *, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Open splits for random access, without TensorFlow. The record files may have any `file_format` of `build`.

    Args:
        split: A split, or a dict or list of splits; None opens all splits.
        data_dir: The folder of prepared data sets; by default TFDS_DATA_DIR.
        **options: Options of `builder`.

    Returns:
        A sequence of samples, or a dict or list of such sequences. A sample is a dict of numpy arrays.

    Raises:
        ShardNotFound: The data set is not built.

    Example:
        sample = tornet.data_source("train-2015")[5]
    """
    return builder(data_dir=data_dir, **options).as_data_source(split)


def load(
    splits: str | Sequence[str] | None = None,
    *,
    split: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Load splits as tf.data.Datasets, as `tfds.load("tornet", …)` does.

    If the data set is not built yet, it is built from the folder that the environment variable TORNET_ROOT names. The
    record files may have any `file_format` of `build`.

    Args:
        splits: A split, or a list of splits.
        split: The same as `splits`, under the name that TFDS uses.
        data_dir: The folder of prepared data sets; by default TFDS_DATA_DIR.
        **options: Options of `tfds.load`.

    Returns:
        A dataset, or a list with a dataset for each split; without `splits`, a dict of all splits.

    Raises:
        SchemaError: Both `splits` and `split` are given.
    """
    if splits is not None and split is not None:
        raise SchemaError("splits and split are two names of one thing: give one of them")
    tfds = _tfds()
    if "TORNET_ROOT" in os.environ and "download_and_prepare_kwargs" not in options:
        config = tfds.download.DownloadConfig(manual_dir=os.environ["TORNET_ROOT"])
        options["download_and_prepare_kwargs"] = {"download_config": config}
    splits_to_load = split if splits is None else splits if isinstance(splits, str) else list(splits)
    return tfds.load("tornet", split=splits_to_load, data_dir=data_dir, **options)
