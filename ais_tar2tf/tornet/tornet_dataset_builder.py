"""The TFDS builder of the data set TorNet. Importing this module registers the name `tornet` with TFDS.

Importing this module must not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ais_tar2tf.base.documents import folders
from ais_tar2tf.base.monitoring.progress import progress_for
from ais_tar2tf.errors import ExportError, SchemaError, ShardNotFound
from ais_tar2tf.tfds.random_access import RandomAccess
from ais_tar2tf.tfds.record_writer import FORMATS
from ais_tar2tf.tfds.stored_features import stored_features
from ais_tar2tf.tornet.building import SAMPLES_PER_FILE, WORK, build
from ais_tar2tf.tornet.catalog import Missing, evenly_divided, read_catalog
from ais_tar2tf.tornet.record_file import Task, features_of
from ais_tar2tf.tornet.sample import read_sample

# Loaded as untyped modules, because the type hints of TFDS do not match its behaviour.
tfds: Any = importlib.import_module("tensorflow_datasets")
hashing: Any = importlib.import_module("tensorflow_datasets.core.hashing")

__all__ = ["Builder"]


class Builder(RandomAccess):
    """The builder of TorNet: radar frames of tornadoes, of warnings without a tornado, and of random storm cells."""

    VERSION = tfds.core.Version("1.1.0")
    RELEASE_NOTES = {"1.1.0": "The sizes and types of the published data set."}  # noqa: RUF012  # declared so by TFDS
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Extract TorNet into a folder, so that it holds catalog.csv, train/ and test/ (or what of them you have), "
        "and name it: tfds.download.DownloadConfig(manual_dir=…), or the environment variable TORNET_ROOT."
    )

    def __init__(
        self,
        *,
        encoding: str | None = None,
        workers: int | None = None,
        missing: Missing = "error",
        progress: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a builder.

        Args:
            encoding: How radar variables are stored: "zlib", "bytes" or "none". Files with "none" are read fastest,
                and are eight times as large as with "zlib". Default: the encoding of the data set in `data_dir`, or
                "zlib" if `data_dir` holds no data set.
            workers: The number of processes that write; None uses all cores.
            missing: What to do if files that catalog.csv lists are absent: "error" raises an error, and "skip" leaves
                out these files.
            progress: Whether to show a progress bar; None shows it in terminals and notebooks.
            **kwargs: Options of `tfds.core.DatasetBuilder`, such as `data_dir` and `file_format`.

        Raises:
            SchemaError: `encoding` is unknown, or `data_dir` holds another encoding or data set.
        """
        if encoding not in (None, *SAMPLES_PER_FILE):
            raise SchemaError(f"encoding {encoding!r} is none of {', '.join(SAMPLES_PER_FILE)}")
        self._encoding = encoding
        self._workers = workers or os.cpu_count() or 1
        self._missing: Missing = missing
        self._progress = progress
        super().__init__(**kwargs)

    @property
    def encoding(self) -> str:
        """The encoding of the radar variables."""
        return self._encoding or "zlib"

    def _info(self) -> Any:
        stored = self._stored_features()
        features = tfds.features.FeaturesDict(
            {
                name: tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding=encoding)
                for name, (shape, dtype, encoding) in features_of(self.encoding).items()
            }
        )
        return tfds.core.DatasetInfo(
            builder=self,
            description="Radar frames around tornadoes, warnings without one, and random cells.",
            features=stored or features,
            homepage="https://github.com/mit-ll/tornet",
        )

    def _stored_features(self) -> Any:
        """Return the features of the data set in `data_dir`; None if no data set is there.

        If there is a data set, the builder uses the encoding of this data set from now on.
        """
        folder = Path(self._data_dir)
        features = stored_features(folder)
        if features is None:
            return None
        if "DBZ" not in features:
            raise SchemaError(f"{folder} holds another data set than TorNet: use another data_dir")
        stored = str(features["DBZ"]._encoding.value)
        if self._encoding not in (None, stored):
            raise SchemaError(
                f"{folder} holds TorNet with encoding {stored!r}, not {self._encoding!r}: use another data_dir"
            )
        self._encoding = stored
        return features

    def download_and_prepare(self, **kwargs: Any) -> None:
        """Write the record files of all splits, and remove the build folder.

        Args:
            **kwargs: Options of TFDS, such as `download_config`.
        """
        super().download_and_prepare(**kwargs)
        # If another process uses or owns the folder, the folder is kept.
        with contextlib.suppress(ExportError, OSError):
            folders.remove(self._build_folder, WORK, fail=ExportError)

    @property
    def _build_folder(self) -> Path:
        """The folder that holds finished files until all files are finished.

        An interrupted run leaves this folder in place, so that the next run writes only the remaining files.
        """
        return Path(self._data_dir_root) / self.name / f".building-{self.version}-{self.info.file_format.value}"

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[str, dict[str, Any]]]]:
        root = self._root(dl_manager)
        catalog = read_catalog(root, missing=self._missing)
        return {split: self._generate_examples(root, files) for split, files in catalog.items()}

    def _generate_examples(self, root: Path, files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield samples for TFDS's own writer, which writes the file formats that are not in `FORMATS`."""
        for name in files:
            yield name, read_sample(root / name)

    def _root(self, dl_manager: Any) -> Path:
        if "TORNET_ROOT" in os.environ and not Path(dl_manager._manual_dir).exists():
            return Path(os.environ["TORNET_ROOT"])
        return Path(dl_manager._manual_dir)

    def _generate_splits(self, dl_manager: Any, download_config: Any) -> list[Any]:
        """Write the splits in several processes, or by TFDS's own writer if the file format is not in `FORMATS`.

        As in TFDS, samples are ordered by the hashes of their names.
        """
        file_format = self.info.file_format.value
        if file_format not in FORMATS:
            return super()._generate_splits(dl_manager, download_config)
        root = self._root(dl_manager)
        catalog = read_catalog(root, missing=self._missing)
        if not catalog:
            raise ShardNotFound("catalog.csv lists no sample that is there", url=str(root))
        max_samples = download_config.max_examples_per_split
        tasks = {
            split: self._tasks(root, split, files[:max_samples], download_config.num_shards)
            for split, files in catalog.items()
        }
        all_tasks = [task for each in tasks.values() for task in each]
        folders.claim(self._build_folder, WORK, fail=ExportError)
        with folders.opened(self._build_folder, fail=ExportError) as work:
            for folder in {task.target.parent.name for task in all_tasks}:
                folders.make_below(folder, work, mode=0o777)
                with folders.opened(folder, below=work, fail=ExportError):
                    pass  # `opened` checks that `folder` is a folder and no link
        build(all_tasks, self._workers, progress_for(self.name, len(all_tasks), self._progress))
        return [self._publish(split, each) for split, each in tasks.items()]

    def _tasks(self, root: Path, split: str, files: Sequence[str], count: int | None) -> list[Task]:
        hasher = hashing.Hasher(split)
        ordered = sorted(files, key=hasher.hash_key)
        count = min(count or -(-len(files) // SAMPLES_PER_FILE[self.encoding]), len(files))
        plan = json.dumps([str(root.resolve()), self.encoding, count, ordered])
        folder = self._build_folder / hashlib.sha256(plan.encode()).hexdigest()[:16]
        names = self._get_filename_template(split).sharded_filepaths(count)
        return [
            Task(folder / path.name, root, part, self.info.file_format.value, self.encoding)
            for path, part in zip(names, evenly_divided(ordered, count), strict=True)
        ]

    def _publish(self, split: str, tasks: Sequence[Task]) -> Any:
        """Link or move finished files to the folder where TFDS expects them. Return the description of the split."""
        for task in tasks:
            target = Path(self._data_dir) / task.target.name
            try:
                os.link(task.target, target)  # the build folder keeps the file, too, for a run after an interruption
            except OSError:
                task.target.replace(target)
        return tfds.core.SplitInfo(
            name=split,
            shard_lengths=[len(task.files) for task in tasks],
            num_bytes=sum(task.payload_bytes for task in tasks),
            filename_template=self._get_filename_template(split),
        )
