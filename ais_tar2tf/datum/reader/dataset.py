"""Batches for training, validation and tests, as the configuration says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.datum.configs import DatasetConfigs
from ais_tar2tf.datum.reader.files import open_directory
from ais_tar2tf.errors import OptionTypeError, SchemaError
from ais_tar2tf.export.splits import share_of
from ais_tar2tf.source import host_of

__all__ = ["Dataset", "load"]


def load(path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> Dataset:
    """The record files of a folder or a URL."""
    return Dataset(path, dataset_configs)


@dataclass(frozen=True)
class Stage:
    """The settings of one of `train_fn`, `val_fn` and `test_fn`, under one name each."""

    name: str
    batch_size: int  # of this host
    drop_remainder: bool
    deterministic: bool
    pre: Callable[[Any], Any] | None
    post: Callable[[Any], Any] | None
    echoing: int | None

    @classmethod
    def of(cls, configs: DatasetConfigs, name: str, hosts: int) -> Stage:
        """Of training the names have no suffix in places, and only its batches are echoed."""
        suffix = "" if name == "train" else f"_{name}"
        return cls(
            name,
            of_host(getattr(configs, f"batch_size_{name}"), hosts),
            getattr(configs, f"drop_remainder{suffix}"),
            getattr(configs, f"deterministic{suffix}"),
            getattr(configs, f"pre_batching_callback_{name}"),
            getattr(configs, f"post_batching_callback_{name}"),
            configs.echoing if name == "train" else None,
        )

    @property
    def drop_setting(self) -> str:
        return "drop_remainder" if self.name == "train" else f"drop_remainder_{self.name}"


def of_host(size: int, hosts: int) -> int:
    """A batch is of all hosts together: each makes its part of it."""
    return max(1, size // hosts)


class Dataset:
    """Each `…_fn` gives a tf.data.Dataset of batched dicts, by the configuration as it is at that moment.

    An instruction is a split, a part of one, or several of them: `"train"`, `"train[:10%]"`, `"train+val[-5:]"`.
    """

    def __init__(self, path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> None:
        self._directory = open_directory(path)
        self.dataset_configs = DatasetConfigs() if dataset_configs is None else dataset_configs

    def __repr__(self) -> str:
        counts = ", ".join(f"{split}: {sum(files.values()):,}" for split, files in self._directory.counts.items())
        return f"<datum.Dataset at {self._directory.where}: {counts}>"

    @property
    def dataset_configs(self) -> DatasetConfigs:
        """The settings; change them, or set other ones, and ask for a dataset again."""
        return self._configs

    @dataset_configs.setter
    def dataset_configs(self, configs: DatasetConfigs) -> None:
        if not isinstance(configs, DatasetConfigs):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code is not checked
            raise OptionTypeError(f"dataset_configs is a DatasetConfigs, not {configs!r}")
        self._configs = configs

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """Batches for training: once, or `repeat` times, -1 for ever."""
        return self._read("train", instruction, repeat, shuffle)

    def val_fn(self, instruction: str = "val", repeat: int | None = None, shuffle: bool = False) -> Any:
        """Batches for validation."""
        return self._read("val", instruction, repeat, shuffle)

    def test_fn(self, instruction: str = "test", repeat: int | None = 1, shuffle: bool = False) -> Any:
        """Batches for tests."""
        return self._read("test", instruction, repeat, shuffle)

    def _read(self, name: str, instruction: str, repeat: int | None, shuffle: bool) -> Any:
        from ais_tar2tf.datum.reader.pipeline import Pipeline

        host, hosts = host_of(self._configs.read_config.input_context)
        stage = Stage.of(self._configs, name, hosts)
        parts = self._directory.parts(instruction)
        records = self._directory.records(share_of(parts, host, hosts))
        said = repr(instruction) if hosts == 1 else f"{instruction!r} for host {host} of {hosts}"
        self._check_size(stage, f"{self._directory.where}: {said}", len(records), hosts)
        pipeline = Pipeline(self._directory, records, self._configs, stage, hosts)
        return pipeline.build(repeat, shuffle)

    def _check_size(self, stage: Stage, where: str, count: int, hosts: int) -> None:
        """A dataset without a batch is never what anybody wants."""
        size, setting = stage.batch_size, f"batch_size_{stage.name}"
        if self._configs.bucket_fn is not None and not self._configs.full_dataset:
            size, setting = of_host(min(self._configs.bucket_op.bucket_batch_sizes), hosts), "bucket_batch_sizes"
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
