"""One job in a process of its own, `_run JOB`; the task is JSON, and so is the answer."""

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

_LEAST_SECONDS = 1.0  # passes go on until so much is measured, then the fastest one counts
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # what clear_refs takes to begin VmHWM anew
_BATCH = 16


def main() -> None:
    warnings.simplefilter("ignore")
    what, task = sys.argv[1], json.load(sys.stdin)
    jobs = {"cache": _cache, "time": _time, "memory": _memory, "resume": _resume, "tfrecords": write_tfrecords}
    print(json.dumps(jobs[what](task)))


def _time(task: dict[str, Any]) -> dict[str, float]:
    """The fastest of as many passes as a second takes, after one over the little shard.

    What is made once, before the first record is asked for (a dataset and its graph), is made before the clock runs.
    """
    reader = {**READERS, **WRITERS, **LAYERS}[task["reader"]]
    if task["reader"] not in WITHOUT_TENSORFLOW:
        _start_tensorflow()
    reader(task["warm_up"], task["warm_up_records"])()
    passes: list[tuple[float, float]] = []
    while sum(wall for wall, _ in passes) < _LEAST_SECONDS:
        drain = reader(task["shards"], task["records"])
        cpu, wall = _cpu_seconds(), time.perf_counter()
        records = drain()
        passes.append((time.perf_counter() - wall, _cpu_seconds() - cpu))
        if records != task["records"]:
            raise RuntimeError(f"{task['reader']} gave {records:,} records of {task['records']:,}")
    wall, cpu = min(passes)
    return {"wall": wall, "cpu": cpu}


def _resume(task: dict[str, Any]) -> dict[str, float]:
    """Seconds until the first record behind nine tenths of a shuffled epoch: by index, checkpoint, or headers."""
    import tensorflow as tf

    import ais_tar2tf as t2t

    _start_tensorflow()
    home, url, begin = Path(task["home"]), task["url"], task["records"] * 9 // 10
    home.mkdir(exist_ok=True)
    where: Any = False
    if task["how"] != "scan":
        where = home / "index.t2t"
        _write_index(where, url, task["records"])

    def dataset(start_at: int) -> Any:
        chosen = t2t.open(url, index=where).select("jpg", "cls")
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
    """Megabytes a second of an epoch that fills a cache, and of the next one; that asks for no body."""
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
    """The index of the endless shard, whose records are all alike: nobody has to read ten gigabytes for it."""
    from ais_tar2tf.shard_index import Index, ShardIndex
    from ais_tar2tf.stores import Identity

    size = records * RECORD + END_MARK
    entry = ShardIndex.of(
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
    """Of this process with all its threads, and of the children (curl) that have ended."""
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usage)


def _memory(task: dict[str, Any]) -> dict[str, float]:
    """How far memory grew at most over all records, and what the server had sent when the first one was there."""
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
"""Each yields once when it is ready to begin, then the number of records in each step; the first step is one."""


def _begin_peak() -> int:
    """Forget the peak so far; the bytes in use now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    return _peak()


def _peak() -> int:
    """The most bytes that were in use: since `_begin_peak` on Linux, since the start elsewhere."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
