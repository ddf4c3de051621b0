"""Compare TorNet samples from record files and tar shards with xarray on netCDF files; measure parallel builds."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["PEER", "READERS", "TornetData"]

_SAMPLES, _QUICK_SAMPLES = 64, 16
_COPIES = 16  # of each sample for builds, so that starting a process (half a second) matters little
_FILES = 8  # record files or shards, which is also the maximum number of a build's workers
_SPLIT = "train-2013"
_ENGINE = "netcdf4" if importlib.util.find_spec("netCDF4") else "h5netcdf"  # netcdf4 is faster
PEER = f"xarray ({_ENGINE}) per file"

Reader = Callable[[list[str], int], Callable[[], int]]


class TornetData:
    """netCDF files, and the files built from them, created when a line first needs them."""

    def __init__(self, home: Path, served: Path, *, quick: bool) -> None:
        self.samples = _QUICK_SAMPLES if quick else _SAMPLES
        self._home = home / "tornet"
        self._served = served
        self.root = cache(self._make)
        self.many = cache(self._link)
        self.built = cache(self._build)
        self.shards = cache(self._pack)

    def _make(self) -> Path:
        from ais_tar2tf.tornet.small_data import events, write_catalog, write_netcdf

        root = self._home / "root"
        made = [event for event in events(self.samples * 2, (2013,)) if event.kind == "train"][: self.samples]
        for event in made:
            write_netcdf(root / event.filename, event)
        write_catalog(root, made)
        return root

    def _link(self) -> Path:
        """Return a folder with the same files under several names each, so that starting a process matters little."""
        from ais_tar2tf.tornet.small_data import events, write_catalog

        root = self._home / "many"
        files = self.files()
        made = [event for event in events(self.samples * _COPIES * 2, (2013,)) if event.kind == "train"]
        made = made[: self.samples * _COPIES]
        for number, event in enumerate(made):
            (root / event.filename).parent.mkdir(parents=True, exist_ok=True)
            (root / event.filename).symlink_to(files[number % len(files)])
        write_catalog(root, made)
        return root

    def _build(self, file_format: str, encoding: str) -> Path:
        from ais_tar2tf import tornet

        folder = self._home / f"{file_format}-{encoding}"
        with redirect_stdout(None):  # TFDS prints its progress
            tornet.build(self.root(), folder, file_format=file_format, encoding=encoding, progress=False)
        return folder

    def _pack(self) -> list[str]:
        from ais_tar2tf import tornet

        written = tornet.pack(self.root(), str(self._served / "tornet"), shards=_FILES, progress=False)
        return [f"tornet/{Path(name).name}" for name in written]

    def files(self) -> list[str]:
        return sorted(str(path) for path in self.root().rglob("*.nc"))


def _xarray(files: list[str], records: int) -> Callable[[], int]:
    """Open each file and read all its variables as arrays, as a loader does."""
    import xarray as xr

    def drain() -> int:
        count = 0
        for path in files:
            with xr.open_dataset(path, engine=_ENGINE) as file:
                sample = {name: variable.values for name, variable in file.variables.items()}
                count += sample["DBZ"].size > 0 and "category" in file.attrs
        return count

    return drain


def _random_access(folders: list[str], records: int) -> Callable[[], int]:
    from ais_tar2tf import tornet

    source = tornet.data_source(_SPLIT, data_dir=folders[0])

    def drain() -> int:
        return sum(source[number]["DBZ"].size > 0 for number in range(records))

    return drain


def _in_tensorflow(folders: list[str], records: int) -> Callable[[], int]:
    import tensorflow_datasets as tfds

    from ais_tar2tf import tornet

    dataset = tornet.load(_SPLIT, data_dir=folders[0], read_config=tfds.ReadConfig(try_autocache=False))
    return lambda: sum(1 for _ in dataset.take(records))


def _streamed(urls: list[str], records: int) -> Callable[[], int]:
    from ais_tar2tf import tornet

    dataset = tornet.stream(urls)
    return lambda: sum(1 for _ in dataset.take(records))


def _building(workers: int) -> Reader:
    def reader(roots: list[str], records: int) -> Callable[[], int]:
        from ais_tar2tf import tornet

        def drain() -> int:
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
                made = tornet.build(
                    roots[0], folder, file_format="tfrecord", workers=workers, progress=False, num_shards=_FILES
                )
                examples: Any = made.info.splits.total_num_examples
                return min(examples, records)

        return drain

    return reader


READERS: dict[str, Reader] = {
    "tornet-xarray": _xarray,
    "tornet-random": _random_access,
    "tornet-tensorflow": _in_tensorflow,
    "tornet-stream": _streamed,
    "tornet-build-1": _building(1),
    "tornet-build-2": _building(2),
}
