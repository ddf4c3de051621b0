"""Run one measurement in this process: `_run MEASUREMENT`.

Its task comes from stdin, its result goes to stdout, as JSON.
"""

from __future__ import annotations

import json
import mmap
import re
import resource
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.benchmarks.data import write_tfrecords
from tests.benchmarks.endless import END_MARK, RECORD
from tests.benchmarks.layers import LAYERS
from tests.benchmarks.readers import READERS, WITHOUT_TENSORFLOW
from tests.benchmarks.writers import WRITERS

_MIN_SECONDS = 1.0  # passes are repeated for at least this long, and the fastest one counts
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # written to clear_refs, it resets VmHWM
_BATCH = 16


def main() -> None:
    warnings.simplefilter("ignore")
    measurement, task = sys.argv[1], json.load(sys.stdin)
    jobs = {"cache": _cache, "time": _time, "memory": _memory, "resume": _resume, "tfrecords": write_tfrecords}
    print(json.dumps(jobs[measurement](task)))


def _time(task: dict[str, Any]) -> dict[str, float]:
    """Measure a reader for one second and return its fastest pass. A pass over a small shard comes first, unmeasured.

    A dataset and its graph are built before the clock starts, because users build them only once.
    """
    reader = {**READERS, **WRITERS, **LAYERS}[task["reader"]]
    if task["reader"] not in WITHOUT_TENSORFLOW:
        _start_tensorflow()
    reader(task["warm_up"], task["warm_up_records"])()
    passes: list[tuple[float, float]] = []
    while sum(wall for wall, _ in passes) < _MIN_SECONDS:
        drain = reader(task["shards"], task["records"])
        cpu, wall = _cpu_seconds(), time.perf_counter()
        records = drain()
        passes.append((time.perf_counter() - wall, _cpu_seconds() - cpu))
        if records != task["records"]:
            raise RuntimeError(f"{task['reader']} gave {records:,} records of {task['records']:,}")
    wall, cpu = min(passes)
    return {"wall": wall, "cpu": cpu}


def _resume(task: dict[str, Any]) -> dict[str, float]:
    """Measure the seconds until the first record after nine tenths of a shuffled epoch.

    `task["how"]` is "index", "checkpoint", or "scan", which reads all headers.
    """
    import tensorflow as tf

    import ais_tar2tf as t2t

    _start_tensorflow()
    home, url, begin = Path(task["home"]), task["url"], task["records"] * 9 // 10
    home.mkdir(exist_ok=True)
    index: Any = False
    if task["how"] != "scan":
        index = home / "index.t2t"
        _write_index(index, url, task["records"])

    def dataset(start_at: int) -> Any:
        chosen = t2t.open(url, index=index).select("jpg", "cls")
        return chosen.dataset(shuffle=t2t.options.Shuffle(seed=1), start_at=start_at)

    saved = ""
    if task["how"] == "checkpoint":
        iterator = iter(dataset(begin))
        next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(str(home / "saved"))
        del iterator
    fresh = dataset(0 if saved else begin)
    began = time.perf_counter()
    iterator = iter(fresh)
    if saved:
        tf.train.Checkpoint(iterator=iterator).restore(saved)
    next(iterator)
    return {"wall": time.perf_counter() - began}


def _cache(task: dict[str, Any]) -> dict[str, float]:
    """Measure the megabytes per second of an epoch that fills a cache, and of the next one, which reads it."""
    import ais_tar2tf as t2t

    rates: dict[str, float] = {}
    with t2t.open(task["shards"], cache=task["cache"], index=False) as source:
        for name in ("cold", "warm"):
            before, began = source.stats.copy(), time.perf_counter()
            records = sum(1 for _ in source.records())
            done = source.stats.since(before)
            rates[name] = done.bytes / 1e6 / (time.perf_counter() - began)
            if records != task["records"] or done.cached != (done.bytes if name == "warm" else 0):
                raise RuntimeError(f"the {name} epoch gave {records:,} records, {done.cached:,} bytes from the cache")
    return rates


def _write_index(path: Path, url: str, records: int) -> None:
    """Write the index of the endless shard without reading it, because all its records have one size."""
    from ais_tar2tf.stores import Identity
    from ais_tar2tf.streams.index.entry import ShardIndex
    from ais_tar2tf.streams.index.shards import Index

    size = records * RECORD + END_MARK
    entry = ShardIndex.from_places(
        url.rpartition("/")[2],
        Identity(etag='"endless"', size=size),
        range(0, records * RECORD, RECORD),
        [RECORD] * records,
        [RECORD] * records,
        compressed=False,
    )
    path.write_bytes(Index("first-dot", [entry]).to_bytes())


def _start_tensorflow() -> None:
    import tensorflow as tf

    list(tf.data.Dataset.range(3).batch(2))


def _cpu_seconds() -> float:
    """Return the CPU seconds of all threads of this process, and of its ended children, such as curl."""
    usage = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usage)


def _memory(task: dict[str, Any]) -> dict[str, float]:
    """Measure how far memory grows over all records, and how many bytes the server sent before the first record."""
    steps = _STEPS[task["reader"]](task["shards"])
    next(steps)
    before = _begin_peak()
    next(steps)
    with Path(task["counter"]).open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as counter:
        sent: int = struct.unpack("<q", counter)[0]
    records = 1 + sum(steps)
    if records != task["records"]:
        raise RuntimeError(f"{task['reader']} gave {records:,} records of {task['records']:,}")
    return {"growth": _peak() - before, "sent": sent}


def _records_of_ours(urls: list[str]) -> Iterator[int]:
    import ais_tar2tf as t2t

    with t2t.open(urls[0]) as source:
        yield 0
        for record in source.records():
            assert record["jpg"]
            yield 1


def _dataset_of_ours(urls: list[str]) -> Iterator[int]:
    import ais_tar2tf as t2t

    _start_tensorflow()
    yield 0
    with t2t.open(urls[0]) as source:
        dataset = source.select("jpg", "cls").dataset()
        yield int(next(iter(dataset.take(1)))["jpg"] != b"")
        yield from (int(batch["jpg"].shape[0]) for batch in dataset.skip(1).batch(_BATCH))


def _records_of_webdataset(urls: list[str]) -> Iterator[int]:
    import webdataset

    dataset = webdataset.WebDataset(f"pipe:curl -s -L {urls[0]}", shardshuffle=False)
    yield 0
    for record in dataset:
        assert record["jpg"]
        yield 1


_STEPS = {
    "ours-records": _records_of_ours,
    "ours-dataset": _dataset_of_ours,
    "webdataset-records": _records_of_webdataset,
}
"""Each reader yields once when it is ready, then the number of records of each step. The first step is one record."""


def _begin_peak() -> int:
    """Reset the peak of memory use, and return the memory in use, in bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    return _peak()


def _peak() -> int:
    """Return the peak of memory use in bytes: on Linux since `_begin_peak`, elsewhere since the start."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
