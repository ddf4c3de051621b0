"""The function `load`, and the class `Dataset`, which returns datasets of batches for training, validation and tests.

This module selects the records and the settings of a dataset. It must not read records: `pipeline.py` makes the
tf.data.Dataset that reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.datum.configs import DatasetConfigs
from ais_tar2tf.datum.reader.files import open_record_directory
from ais_tar2tf.errors import OptionTypeError, SchemaError
from ais_tar2tf.recordfiles.export.splits import host_ranges
from ais_tar2tf.streams.arguments import host_of

__all__ = ["Dataset", "load"]


def load(path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> Dataset:
    """Open the record files that `export_to_tfrecord` wrote.

    Args:
        path: A folder or a URL.
        dataset_configs: The settings of the datasets. None: the default settings.

    Raises:
        ExportError: There is no finished export at `path`.

    Example:
        >>> from ais_tar2tf import datum
        >>> train = datum.load("records/").train_fn("train", shuffle=True)  # doctest: +SKIP
    """
    return Dataset(path, dataset_configs)


@dataclass(frozen=True)
class Stage:
    """The settings that one of the functions `train_fn`, `val_fn` and `test_fn` has for itself."""

    name: str
    batch_size: int  # the number of examples that this host contributes to a batch
    drop_remainder: bool
    deterministic: bool
    pre: Callable[[Any], Any] | None  # the callback before batching
    post: Callable[[Any], Any] | None  # the callback after batching
    echoing: int | None  # how many times each batch is returned; None: once

    @classmethod
    def from_configs(cls, configs: DatasetConfigs, name: str, hosts: int) -> Stage:
        """Return the settings of the stage `name`: "train", "val" or "test".

        The name of a setting in `DatasetConfigs` ends in its stage, as in `batch_size_val`. But some settings for
        "train" have names without such an end, for example `drop_remainder`.
        """
        suffix = "" if name == "train" else f"_{name}"
        return cls(
            name,
            host_batch_size(getattr(configs, f"batch_size_{name}"), hosts),
            getattr(configs, f"drop_remainder{suffix}"),
            getattr(configs, f"deterministic{suffix}"),
            getattr(configs, f"pre_batching_callback_{name}"),
            getattr(configs, f"post_batching_callback_{name}"),
            configs.echoing if name == "train" else None,
        )

    @property
    def drop_setting(self) -> str:
        """The name of the setting in `DatasetConfigs` from which `drop_remainder` comes."""
        return "drop_remainder" if self.name == "train" else f"drop_remainder_{self.name}"


def host_batch_size(size: int, hosts: int) -> int:
    """Return how many examples each of `hosts` hosts contributes to a batch of `size` examples; at least one."""
    return max(1, size // hosts)


class Dataset:
    """The record files of a folder or a URL, read as batches.

    `train_fn`, `val_fn` and `test_fn` return a tf.data.Dataset of batches, which are dicts. Each call applies the
    settings that `dataset_configs` has at the time of the call. An instruction selects the examples: a split
    (`"train"`), a part of a split (`"train[:10%]"`), or several of these (`"train+val[-5:]"`).
    """

    def __init__(self, path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> None:
        """Open the files at `path`; see `load`."""
        self._directory = open_record_directory(path)
        self.dataset_configs = DatasetConfigs() if dataset_configs is None else dataset_configs

    def __repr__(self) -> str:
        counts = ", ".join(f"{split}: {sum(files.values()):,}" for split, files in self._directory.counts.items())
        return f"<datum.Dataset at {self._directory.where}: {counts}>"

    @property
    def dataset_configs(self) -> DatasetConfigs:
        """The settings. A change applies to datasets that are made after the change."""
        return self._configs

    @dataset_configs.setter
    def dataset_configs(self, configs: DatasetConfigs) -> None:
        if not isinstance(configs, DatasetConfigs):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code is not checked
            raise OptionTypeError(f"dataset_configs is a DatasetConfigs, not {configs!r}")
        self._configs = configs

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """Return batches for training.

        Args:
            instruction: The examples, such as "train[:10%]".
            repeat: The number of epochs; None for one, -1 for endless epochs.
            shuffle: Whether to shuffle the examples, and the files if `shuffle_files` is set.

        Returns:
            A tf.data.Dataset of dicts; with `full_dataset`, one dict of tensors.

        Raises:
            SchemaError: The instruction is wrong, or there is no batch.
            ExportError: A record file is missing.
        """
        return self._read("train", instruction, repeat, shuffle)

    def val_fn(self, instruction: str = "val", repeat: int | None = None, shuffle: bool = False) -> Any:
        """Return batches for validation.

        Args:
            instruction: The examples, such as "val[:10%]".
            repeat: The number of epochs; None for one, -1 for endless epochs.
            shuffle: Whether to shuffle the examples, and the files if `shuffle_files` is set.

        Returns:
            A tf.data.Dataset of dicts; with `full_dataset`, one dict of tensors.

        Raises:
            SchemaError: The instruction is wrong, or there is no batch.
            ExportError: A record file is missing.
        """
        return self._read("val", instruction, repeat, shuffle)

    def test_fn(self, instruction: str = "test", repeat: int | None = 1, shuffle: bool = False) -> Any:
        """Return batches for tests.

        Args:
            instruction: The examples, such as "test[:10%]".
            repeat: The number of epochs; None for one, -1 for endless epochs.
            shuffle: Whether to shuffle the examples, and the files if `shuffle_files` is set.

        Returns:
            A tf.data.Dataset of dicts; with `full_dataset`, one dict of tensors.

        Raises:
            SchemaError: The instruction is wrong, or there is no batch.
            ExportError: A record file is missing.
        """
        return self._read("test", instruction, repeat, shuffle)

    def _read(self, name: str, instruction: str, repeat: int | None, shuffle: bool) -> Any:
        from ais_tar2tf.datum.reader.pipeline import BatchPipeline

        host, hosts = host_of(self._configs.read_config.input_context)
        stage = Stage.from_configs(self._configs, name, hosts)
        ranges = self._directory.ranges(instruction)
        records = self._directory.records(host_ranges(ranges, host, hosts))
        examples = repr(instruction) if hosts == 1 else f"{instruction!r} for host {host} of {hosts}"
        self._check_size(stage, f"{self._directory.where}: {examples}", len(records), hosts)
        pipeline = BatchPipeline(self._directory, records, self._configs, stage, hosts)
        return pipeline.build(repeat, shuffle)

    def _check_size(self, stage: Stage, where: str, count: int, hosts: int) -> None:
        """Raise SchemaError if there would be no batch, or if `full_dataset` is set and needs several batches."""
        size, setting = stage.batch_size, f"batch_size_{stage.name}"
        if self._configs.bucket_fn is not None and not self._configs.full_dataset:
            smallest = min(self._configs.bucket_op.bucket_batch_sizes)
            size, setting = host_batch_size(smallest, hosts), "bucket_batch_sizes"
        if not count:
            raise SchemaError(f"{where} has no examples")
        if self._configs.full_dataset:
            if count > size:
                raise SchemaError(
                    f"{where} has {count:,} examples, more than one batch of {size:,}: full_dataset needs "
                    f"{setting} >= {count * hosts}"
                )
        elif stage.drop_remainder and count < size:
            drop, each = stage.drop_setting, "" if hosts == 1 else " on each host"
            raise SchemaError(
                f"{where} has {count:,} examples, fewer than {setting}={size:,}{each}, and {drop} leaves out the "
                f"rest: not one batch; set {drop}=False, or a smaller {setting}"
            )
