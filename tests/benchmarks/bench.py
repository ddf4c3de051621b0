"""State that all benchmarks share, and the result of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.benchmarks import measure
from tests.benchmarks.data import Data
from tests.benchmarks.endless import records_in
from tests.benchmarks.layers import make_folder
from tests.benchmarks.tornet import TornetData
from tests.benchmarks.web import Web
from tests.benchmarks.writers import WRITERS

__all__ = ["Bench", "Result"]

_GB = 1_000_000_000
_LAYER_KINDS = {
    "2KB": (4_000, 500),
    "64KB": (500, 16_000),
}  # number of records, and float32 values of each array: 1 s of sound
_LAYER_WARM = 64
_FILES = ("ours-files", "ours-files-python", "ours-batches-files", "ours-batches-files-python", "spdl-files")
_LOCAL = frozenset(
    {"isal", "zstd", "lz4", "our-decoder", "dali", "grain", "tar-x", "cp", *_FILES, *WRITERS}
)  # readers of local files instead of URLs


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the output.

    `goal` is a minimum of the ratio, or a maximum of our own figure if `goal_on` is "ours".
    """

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    goal: float | None
    goal_on: str = "ratio"
    ours_cpu_s: float | None = None
    peer_cpu_s: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def holds(self) -> bool | None:
        """Whether the goal is met; None if there is no goal."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.goal_on == "ratio" else self.ours <= self.goal

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "ratio": self.ratio, "holds": self.holds}


@dataclass
class Bench:
    """The server, data and number of rounds of all benchmarks, and measurements that several lines use."""

    web: Web
    data: Data
    home: Path
    quick: bool
    rounds: int
    streamed: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def tornet(self) -> TornetData:
        return TornetData(self.home, self.data.folder, quick=self.quick)

    @contextmanager
    def embedded(self) -> Iterator[str]:
        """Start our embedded server over the same folder, and return the URL of its bucket."""
        command = [sys.executable, "-m", "ais_tar2tf", "serve", str(self.data.folder.parent), "--port", "0", "-q"]
        with subprocess.Popen(command, cwd=measure.ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield f"{process.stdout.readline().strip()}/v1/objects/{self.data.folder.name}"
            finally:
                process.terminate()

    def task(self, reader: str, kind: str) -> dict[str, Any]:
        """Return the task for `_run` in which a reader reads a data set's shards or its TFRecord files."""
        if reader.startswith("tfrecord"):
            files = self.data.tfrecords(kind)
        elif reader in _LOCAL:
            files = [str(self.data.folder / name) for name in self.data.shards(kind)]
        else:
            files = [self.web.url(name) for name in self.data.shards(kind)]
        return {
            "reader": reader,
            "shards": files[:-1],
            "records": self.data.sets[kind].records,
            "warm_up": files[-1:],
            "warm_up_records": self.data.warm_up_records(kind),
        }

    def read(self, reader: str, kind: str, urls: list[str]) -> dict[str, Any]:
        """Return the task in which a reader reads a data set's shards by other URLs."""
        each = self.data.sets[kind].records // self.data.sets[kind].shards
        records = len(urls) * each
        return {
            "reader": reader,
            "shards": urls,
            "records": records,
            "warm_up": urls[:1],
            "warm_up_records": each,
        }

    def layer_task(self, name: str, kind: str) -> dict[str, Any]:
        """Return the task of a layer: a folder of many files, and a small one to warm up."""
        records, values = _LAYER_KINDS[kind]
        records //= 4 if self.quick else 1
        for folder, count in ((f"layers-{kind}", records), ("layers-warm", _LAYER_WARM)):
            if not (self.home / folder).exists():
                make_folder(self.home / folder, count, values)
        return {
            "reader": name,
            "shards": [str(self.home / f"layers-{kind}")],
            "records": records,
            "warm_up": [str(self.home / "layers-warm")],
            "warm_up_records": _LAYER_WARM,
        }

    def stream(self, reader: str) -> dict[str, float]:
        """Return the memory growth and the bytes sent while a reader reads the endless shard.

        Measured once for each reader.
        """
        if reader not in self.streamed:
            size, counter = (1 if self.quick else 4) * _GB, self.home / f"sent-{reader}"
            with measure.endless_shard(size, counter) as url:
                task = {"reader": reader, "shards": [url], "records": records_in(size), "counter": str(counter)}
                self.streamed[reader] = measure.run("memory", task)
        return self.streamed[reader]

    def resumed(self, how: str) -> float:
        """Return the seconds to resume at nine tenths of the endless shard. Measured once for each way."""
        if how not in self.seconds:
            size = (1 if self.quick else 10) * _GB
            with measure.endless_shard(size, self.home / f"sent-{how}") as url:
                task = {"how": how, "url": url, "records": records_in(size), "home": str(self.home / how)}
                self.seconds[how] = measure.run("resume", task)["wall"]
        return self.seconds[how]
