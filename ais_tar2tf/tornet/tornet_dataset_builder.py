"""TorNet as a TFDS data set. Importing this registers the name `tornet`; TensorFlow is not needed, nor imported."""

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

from ais_tar2tf import owned
from ais_tar2tf.errors import ExportError, SchemaError, ShardNotFound
from ais_tar2tf.progress import progress_for
from ais_tar2tf.tfds._random_access import RandomAccess
from ais_tar2tf.tfds._record_writer import FORMATS
from ais_tar2tf.tfds._stored_features import stored_features
from ais_tar2tf.tornet.building import SAMPLES_PER_FILE, WORK, build
from ais_tar2tf.tornet.catalog import Missing, read_catalog, shares
from ais_tar2tf.tornet.record_file import Task, features_of
from ais_tar2tf.tornet.sample import read_sample

# As modules of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")
hashing: Any = importlib.import_module("tensorflow_datasets.core.hashing")

__all__ = ["Builder"]


class Builder(RandomAccess):
    """TorNet: radar frames around tornadoes, warnings that came to nothing, and random cells.

    `encoding` is how the radar's variables are stored: `"zlib"`, or for speed `"none"`, eight times as large.
    `workers` processes write (all cores by default). `missing="skip"` leaves out files that the catalog lists and
    that are absent. `progress` shows or hides the progress bar, which is shown in terminals and notebooks.
    """

    VERSION = tfds.core.Version("1.1.0")
    RELEASE_NOTES = {"1.1.0": "The sizes and types of the published data set."}  # noqa: RUF012  # as TFDS has it
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
        if encoding not in (None, *SAMPLES_PER_FILE):
            raise SchemaError(f"encoding {encoding!r} is none of {', '.join(SAMPLES_PER_FILE)}")
        self._encoding = encoding
        self._workers = workers or os.cpu_count() or 1
        self._missing: Missing = missing
        self._progress = progress
        super().__init__(**kwargs)

    @property
    def encoding(self) -> str:
        """How the radar's variables are stored: as the data on disk says, if there are any."""
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
        """What features.json of a prepared data set says, whoever built it."""
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

    def download_and_prepare(self, **kwargs: Any) -> None:  # as TFDS says
        super().download_and_prepare(**kwargs)
        with contextlib.suppress(ExportError, OSError):  # it is somebody else's, or in use: then it stays
            owned.remove(self._work, WORK, fail=ExportError)

    @property
    def _work(self) -> Path:
        """Where finished files wait until all are; it outlives a run that was interrupted."""
        return Path(self._data_dir_root) / self.name / f".building-{self.version}-{self.info.file_format.value}"

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[str, dict[str, Any]]]]:
        root = self._root(dl_manager)
        catalog = read_catalog(root, missing=self._missing)
        return {split: self._generate_examples(root, files) for split, files in catalog.items()}

    def _generate_examples(self, root: Path, files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """For TFDS's own writing, in one process; see `_generate_splits`."""
        for name in files:
            yield name, read_sample(root / name)

    def _root(self, dl_manager: Any) -> Path:
        given = dl_manager._manual_dir
        return Path(given if Path(given).exists() or "TORNET_ROOT" not in os.environ else os.environ["TORNET_ROOT"])

    def _generate_splits(self, dl_manager: Any, download_config: Any) -> list[Any]:
        """The splits, written in several processes: the samples in TFDS's order, by the hash of their names."""
        file_format = self.info.file_format.value
        if file_format not in FORMATS:
            return super()._generate_splits(dl_manager, download_config)
        root = self._root(dl_manager)
        catalog = read_catalog(root, missing=self._missing)
        if not catalog:
            raise ShardNotFound("catalog.csv lists no sample that is there", url=str(root))
        most = download_config.max_examples_per_split
        tasks = {
            split: self._tasks(root, split, files[:most], download_config.num_shards)
            for split, files in catalog.items()
        }
        flat = [task for each in tasks.values() for task in each]
        owned.claim(self._work, WORK, fail=ExportError)
        with owned.opened(self._work, fail=ExportError) as work:
            for folder in {task.target.parent.name for task in flat}:
                owned.make_below(folder, work, mode=0o777)
                with owned.opened(folder, below=work, fail=ExportError):
                    pass  # it is a folder, and no link to one
        build(flat, self._workers, progress_for(self.name, len(flat), self._progress))
        return [self._publish(split, each) for split, each in tasks.items()]

    def _tasks(self, root: Path, split: str, files: Sequence[str], number: int | None) -> list[Task]:
        hasher = hashing.Hasher(split)
        ordered = sorted(files, key=hasher.hash_key)
        number = min(number or -(-len(files) // SAMPLES_PER_FILE[self.encoding]), len(files))
        plan = json.dumps([str(root.resolve()), self.encoding, number, ordered])
        folder = self._work / hashlib.sha256(plan.encode()).hexdigest()[:16]
        names = self._get_filename_template(split).sharded_filepaths(number)
        return [
            Task(folder / path.name, root, share, self.info.file_format.value, self.encoding)
            for path, share in zip(names, shares(ordered, number), strict=True)
        ]

    def _publish(self, split: str, tasks: Sequence[Task]) -> Any:
        """Put finished files where TFDS renames them from, and say what they hold."""
        for task in tasks:
            target = Path(self._data_dir) / task.target.name
            try:
                os.link(task.target, target)  # so that they are still there if this run ends before it is through
            except OSError:
                task.target.replace(target)
        return tfds.core.SplitInfo(
            name=split,
            shard_lengths=[len(task.files) for task in tasks],
            num_bytes=sum(task.payload_bytes for task in tasks),
            filename_template=self._get_filename_template(split),
        )
