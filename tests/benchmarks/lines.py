"""The lines of the benchmark: which reader is compared with which peer, and its goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.benchmarks import measure, selecting
from tests.benchmarks.bench import Bench, Result
from tests.benchmarks.peers import PARALLEL, STREAMS
from tests.benchmarks.tornet import PEER
from tests.benchmarks.web import LINK
from tests.servers.build import FULL, build
from tests.servers.toxiproxy import Toxiproxy

__all__ = ["LINES"]

_MB = 1_000_000
_MIB = 1024 * 1024
_MANY = 10_000  # shards
_LINK_KB = 200_000  # per second

Line = Callable[[str, Bench], Result]


def _against(
    name: str,
    bench: Bench,
    tasks: list[dict[str, Any]],
    count: int,
    peer_name: str,
    goal: float | None,
    unit: str = "records/s",
) -> Result:
    """Compare how many of `count` items per second our task and the peer's process."""
    mine, theirs = measure.alternate(tasks, bench.rounds)
    return Result(
        name=name,
        ours=count / mine.wall,
        peer=count / theirs.wall,
        peer_name=peer_name,
        unit=unit,
        goal=goal,
        ours_cpu_s=mine.cpu,
        peer_cpu_s=theirs.cpu,
    )


def _rate(ours: str, peer: str, peer_name: str, kind: str, goal: float | None = None) -> Line:
    """Compare records per second."""

    def line(name: str, bench: Bench) -> Result:
        tasks = [bench.task(ours, kind), bench.task(peer, kind)]
        return _against(name, bench, tasks, bench.data.sets[kind].records, peer_name, goal)

    return line


def _sdk(name: str, bench: Bench) -> Result:
    """Compare with AIStore's SDK. Both read from the embedded server, which implements AIStore's API."""
    kind = name.rpartition("-")[2]
    shards = bench.data.shards(kind)[:-1]
    with bench.embedded() as root:
        tasks = [
            bench.read(reader, kind, [f"{root}/{shard}" for shard in shards])
            for reader in ("ours-records", "aistore-sdk")
        ]
        records = bench.data.sets[kind].records
        return _against(name, bench, tasks, records, "the aistore SDK's reader + tarfile", None)


def _selected(where: str, goal: float | None, ours: str = "ours-selected") -> Line:
    """Compare reading one small field with reading the record's large field as well."""

    def line(name: str, bench: Bench) -> Result:
        shards = bench.data.shards("1MB+1KB")[:-1]
        urls = [str(bench.data.folder / shard) if where == "file" else bench.web.limited(shard) for shard in shards]
        tasks = [bench.read(reader, "1MB+1KB", urls) for reader in (ours, "ours-unselected")]
        return _against(name, bench, tasks, tasks[0]["records"], "ours, both fields", goal)

    return line


def _streams(name: str, bench: Bench) -> Result:
    """Compare several connections with one. Each connection is limited to `LINK`."""
    connections = name.rpartition("-")[2]
    urls = [bench.web.limited(shard) for shard in bench.data.shards("100KB")[:-1]]
    tasks = [bench.read(f"ours-streams-{count}", "100KB", urls) for count in (connections, 1)]
    link = f"one connection of {LINK // _MB} MB/s"
    return _against(name, bench, tasks, tasks[0]["records"], link, 1.5 if connections == "2" else None)


def _parallel(name: str, bench: Bench) -> Result:
    """Compare several concurrent calls of a mapping, which decodes JPEGs, with one."""
    calls = name.rpartition("-")[2]
    tasks = [bench.task(f"ours-pictures-{count}", "pictures") for count in (calls, PARALLEL[0])]
    return _against(name, bench, tasks, tasks[0]["records"], f"parallel={PARALLEL[0]}", None)


def _many_shards(name: str, bench: Bench) -> Result:
    """Compare reading from very many shards with reading from 100 shards of the same size."""
    (shard, _) = bench.data.shards("many")
    few, many = (bench.read("ours-records", "many", bench.web.copies(shard, count)) for count in (100, _MANY))
    ours, peer = measure.alternate([many, few], bench.rounds)
    return Result(
        name=name,
        ours=many["records"] / ours.wall,
        peer=few["records"] / peer.wall,
        peer_name="100 such shards",
        unit="records/s",
        goal=0.9,
        ours_cpu_s=ours.cpu,
        peer_cpu_s=peer.cpu,
    )


def _codec(ours: str, peer: str, peer_name: str, goal: float | None = None) -> Line:
    """Compare tf.train.Examples per second."""

    def line(name: str, bench: Bench) -> Result:
        count = 2_000 if bench.quick else 10_000
        tasks = [
            {"reader": reader, "shards": [], "records": count, "warm_up": [], "warm_up_records": 100}
            for reader in (ours, peer)
        ]
        return _against(name, bench, tasks, count, peer_name, goal, "examples/s")

    return line


def _tornet(reader: str, goal: float | None, *stored: str) -> Line:
    """Compare samples per second with xarray on netCDF files.

    Ours reads record files, or tar shards without `stored`.
    """

    def line(name: str, bench: Bench) -> Result:
        data = bench.tornet
        paths = [str(data.built(*stored))] if stored else [bench.web.url(shard) for shard in data.shards()]
        few = 2  # samples that warm up a reader
        tasks = [
            {"reader": reader, "shards": paths, "records": data.samples, "warm_up": paths, "warm_up_records": few},
            {
                "reader": "tornet-xarray",
                "shards": data.files(),
                "records": data.samples,
                "warm_up": data.files()[:few],
                "warm_up_records": few,
            },
        ]
        return _against(name, bench, tasks, data.samples, PEER, goal, "samples/s")

    return line


def _layer(ours: str, peer: str, goal: float | None, kind: str = "2KB") -> Line:
    """Compare a layer with the same work by hand, as in TensorFlow's guides."""

    def line(name: str, bench: Bench) -> Result:
        tasks = [bench.layer_task(reader, kind) for reader in (ours, peer)]
        return _against(name, bench, tasks, tasks[0]["records"], "tf.train.Example by hand", goal)

    return line


def _tornet_build(name: str, bench: Bench) -> Result:
    data = bench.tornet
    root, many = [str(data.root())], [str(data.many())]
    samples = len(list(data.many().rglob("*.nc")))
    shared = {"shards": many, "records": samples, "warm_up": root, "warm_up_records": 1}
    tasks = [{"reader": f"tornet-build-{workers}", **shared} for workers in (2, 1)]
    return _against(name, bench, tasks, samples, "one process", 1.7, "samples/s")


def _selection(name: str, bench: Bench) -> Result:
    """Compare selection in the cluster and at the client: 1 KB of each 1 MB, over a link of 200 MB/s."""
    shards, records = (4, 25) if bench.quick else (8, 100)
    found = selecting.run(shards, records, bench.rounds)
    ours, peer = found["cluster"], found["client"]
    return Result(
        name=name,
        ours=shards * records / ours["wall"],
        peer=shards * records / peer["wall"],
        peer_name=f"at the client ({peer['bytes'] / ours['bytes']:.0f}× the bytes)",
        unit="records/s",
        goal=5,
        ours_cpu_s=ours["cpu"],
        peer_cpu_s=peer["cpu"],
    )


def _import(name: str, bench: Bench) -> Result:
    ours, peer = measure.import_seconds(["ais_tar2tf", "webdataset"], 2 * bench.rounds)
    return Result(name=name, ours=ours, peer=peer, peer_name="import webdataset", unit="s", goal=0.15, goal_on="ours")


def _streaming(reader: str, figure: str, unit: str, each: int, goal: float) -> Line:
    """Measure a cost of streaming one huge shard: `figure` of `Bench.stream`, in `unit`s of `each` bytes."""

    def line(name: str, bench: Bench) -> Result:
        peer = bench.stream("webdataset-records")[figure] / each
        ours = bench.stream(reader)[figure] / each
        return Result(name=name, ours=ours, peer=peer, peer_name="webdataset", unit=unit, goal=goal, goal_on="ours")

    return line


def _resume(how: str) -> Line:
    """Measure the seconds until the first record after nine tenths of a shuffled epoch."""

    def line(name: str, bench: Bench) -> Result:
        return Result(
            name=name,
            ours=bench.resumed(how),
            peer=bench.resumed("scan"),
            peer_name="ours, reading headers",
            unit="s",
            goal=2,
            goal_on="ours",
        )

    return line


def _cache(name: str, bench: Bench) -> Result:
    """Compare an epoch from a disk cache with the first epoch over a link of 200 MB/s, in megabytes per second."""
    folder = bench.home / "toxiproxy"
    folder.mkdir(exist_ok=True)
    best = {"cold": 0.0, "warm": 0.0}
    with Toxiproxy(build(FULL["toxiproxy"]), folder) as proxy:
        task = bench.task("ours-records", "100KB")
        url = proxy.in_front_of(bench.web.root)
        proxy.poison("bandwidth", {"rate": _LINK_KB})
        task["shards"] = [shard.replace(bench.web.root, url) for shard in task["shards"]]
        for turn in range(bench.rounds):
            found = measure.run("cache", {**task, "cache": str(bench.home / f"cache-{turn}")})
            best = {each: max(best[each], found[each]) for each in best}
    return Result(
        name=name, ours=best["warm"], peer=best["cold"], peer_name="ours, the first epoch", unit="MB/s", goal=2
    )


_WEBDATASET = ("ours-records", "webdataset-records", "webdataset")
_WEBDATASET_TF = ("ours-dataset", "webdataset-dataset", "webdataset → from_generator")
_OLD_CLIENT_TF = ("ours-dataset", "old-client-dataset", "requests+tarfile → from_generator")
_WEBDATASET_WRITER = ("ours-export", "webdataset-tfrecord-writer", "webdataset + TFRecordWriter")

LINES: dict[str, Line] = {
    "records-2KB": _rate(*_WEBDATASET, "2KB", 25),
    "records-100KB": _rate(*_WEBDATASET, "100KB", 4.5),
    "records-pax-2KB": _rate(*_WEBDATASET, "2KB-pax", 10),
    "records-gzip-2KB": _rate(*_WEBDATASET, "2KB-gzip", 10),
    "records-curl-100KB": _rate("ours-records", "curl", "one curl, bytes only", "100KB", 0.85),
    "gzip-isal-2KB": _rate("ours-records", "isal", "isal alone, local, bytes only", "2KB-gzip", 0.85),
    "decompress-gz": _rate("our-decoder", "isal", "isal's own file", "2KB-gzip", 0.85),
    "decompress-zst": _rate("our-decoder", "zstd", "zstd's own file", "2KB-zstd", 0.85),
    "decompress-lz4": _rate("our-decoder", "lz4", "lz4's own file", "2KB-lz4", 0.85),
    "dataset-2KB": _rate(*_WEBDATASET_TF, "2KB", 60),
    "dataset-100KB": _rate(*_WEBDATASET_TF, "100KB", 7),
    "records-hugging-face-2KB": _rate("ours-records", "hugging-face", "Hugging Face datasets, streaming", "2KB"),
    "records-hugging-face-100KB": _rate("ours-records", "hugging-face", "Hugging Face datasets, streaming", "100KB"),
    "records-sdk-2KB": _sdk,
    "records-sdk-100KB": _sdk,
    "records-spdl-2KB": _rate("ours-records", "spdl", "SPDL + urllib", "2KB", 3),
    "records-spdl-100KB": _rate("ours-records", "spdl", "SPDL + urllib", "100KB", 1.2),
    "files-spdl-2KB": _rate("ours-files", "spdl-files", "SPDL", "2KB", 1.5),
    "files-spdl-100KB": _rate("ours-files", "spdl-files", "SPDL", "100KB", 1.0),
    "records-engines-2KB": _rate("ours-records", "ours-records-python", "ours in pure Python", "2KB"),
    "records-engines-100KB": _rate("ours-records", "ours-records-python", "ours in pure Python", "100KB"),
    "batch-engines-2KB": _rate("ours-batches", "ours-batches-python", "ours in pure Python", "2KB"),
    "batch-engines-100KB": _rate("ours-batches", "ours-batches-python", "ours in pure Python", "100KB"),
    **{
        f"{line}-engines-{kind}": _rate(reader, f"{reader}-python", "ours in pure Python", kind)
        for line, reader in (("files", "ours-files"), ("batch-files", "ours-batches-files"))
        for kind in ("2KB", "100KB")
    },
    "batch-files-2KB": _rate("ours-batches-files", "tfrecord-batches", "local TFRecord in batches", "2KB", 1.2),
    "batch-files-100KB": _rate("ours-batches-files", "tfrecord-batches", "local TFRecord in batches", "100KB", 2),
    "records-grain-2KB": _rate("ours-records", "grain", "grain, local ArrayRecord, bytes", "2KB"),
    "records-grain-100KB": _rate("ours-records", "grain", "grain, local ArrayRecord, bytes", "100KB"),
    "records-curls-100KB": _rate("ours-records", "curl-streams", "curl, 4 streams, bytes only", "100KB"),
    "records-tar-x-2KB": _rate("ours-records", "tar-x", "tar -x into memory, local", "2KB"),
    "records-tar-x-100KB": _rate("ours-records", "tar-x", "tar -x into memory, local", "100KB"),
    "batch-tfrecord-2KB": _rate("ours-batches", "tfrecord-batches", "local TFRecord in batches", "2KB", 1),
    "batch-tfrecord-100KB": _rate("ours-batches", "tfrecord-batches", "local TFRecord in batches", "100KB", 0.85),
    "batch-dali-2KB": _rate("ours-batches-files", "dali", "DALI, local, mapped", "2KB", 2),
    "batch-dali-100KB": _rate("ours-batches-files", "dali", "DALI, local, mapped", "100KB", 0.6),
    "batch-curl-100KB": _rate("ours-batches", "curl", "one curl, bytes only", "100KB", 0.45),
    "pictures-tfrecord": _rate("ours-pictures", "tfrecord-pictures", "local TFRecord, the same map", "pictures", 1),
    "pictures-old": _rate("ours-pictures", "old-client-pictures", "requests+tarfile, a generator", "pictures", 2),
    "pictures-scaled": _rate("ours-pictures-scaled", "ours-pictures", "ours, all pixels decoded", "pictures"),
    "selected-file": _selected("file", 5),
    "selected-link": _selected("link", 5, "ours-selected-indexed"),
    "selected-link-bare": _selected("link", None),
    **{f"streams-{count}": _streams for count in STREAMS[1:]},
    **{f"parallel-{count}": _parallel for count in PARALLEL[1:]},
    "shards-10000": _many_shards,
    "dataset-old-2KB": _rate(*_OLD_CLIENT_TF, "2KB"),
    "dataset-old-100KB": _rate(*_OLD_CLIENT_TF, "100KB"),
    "dataset-tfrecord-2KB": _rate("ours-dataset", "tfrecord-single", "local TFRecord", "2KB", 1.5),
    "dataset-tfrecord-100KB": _rate("ours-dataset", "tfrecord-single-parallel", "local TFRecord", "100KB", 1.5),
    "export-2KB": _rate(*_WEBDATASET_WRITER, "2KB", 15),
    "export-100KB": _rate(*_WEBDATASET_WRITER, "100KB", 4),
    "export-cp-100KB": _rate("ours-export", "cp", "cp of the same bytes", "100KB", 0.5),
    "export-two-workers-2KB": _rate("ours-export-2", "ours-export", "ours with one worker", "2KB-many", 1.6),
    "load-2KB": _rate("ours-loaded", "plain-tfrecord", "TFRecordDataset + parse", "2KB", 1),
    "load-parallel-2KB": _rate("ours-loaded", "plain-tfrecord-parallel", "the same in parallel", "2KB", 1),
    "load-100KB": _rate("ours-loaded", "plain-tfrecord", "TFRecordDataset + parse", "100KB", 1),
    "load-parallel-100KB": _rate("ours-loaded", "plain-tfrecord-parallel", "the same in parallel", "100KB", 1),
    "shuffle-2KB": _rate("ours-shuffled", "ours-dataset", "ours, in order", "2KB", 0.85),
    "shuffle-100KB": _rate("ours-shuffled", "ours-dataset", "ours, in order", "100KB", 0.85),
    "cache-warm": _cache,
    "resume-index-10GB": _resume("index"),
    "resume-checkpoint-10GB": _resume("checkpoint"),
    "example-encode-2KB": _codec("ours-encode", "tensorflow-encode", "Example(…).SerializeToString", 3),
    "example-decode-2KB": _codec("ours-decode", "tensorflow-decode", "FromString, values copied", 3),
    "example-decode-bare-2KB": _codec("ours-decode", "tensorflow-decode-bare", "FromString alone"),
    "example-encode-floats": _codec("ours-encode-floats", "tensorflow-encode-floats", "SerializeToString", 3),
    "example-decode-floats": _codec("ours-decode-floats", "tensorflow-decode-floats", "FromString, values copied"),
    "datum-export": _layer("datum-export", "guide-export", 3),
    "datum-load": _layer("datum-loaded", "guide-loaded", None),  # in both, decoding JPEGs takes most of the time
    "datum-texts-export": _layer(
        "datum-texts-export", "guide-texts", None
    ),  # ours reads all texts first to infer their types
    "datum-texts-load": _layer("datum-texts-loaded", "guide-texts-loaded", 1.5),
    "tfrecorder-export-2KB": _layer(
        "tfrecorder-export", "guide-arrays", None
    ),  # in both, np.load takes half of the time
    "tfrecorder-export-64KB": _layer("tfrecorder-export", "guide-arrays", 3, "64KB"),
    "tfrecorder-load-2KB": _layer("tfrecorder-loaded", "guide-arrays-loaded", 1.5),
    "tfrecorder-load-64KB": _layer("tfrecorder-loaded", "guide-arrays-loaded", None, "64KB"),  # both copy
    "tornet-zlib": _tornet("tornet-random", 1.5, "array_record", "zlib"),
    "tornet-zlib-tfrecord": _tornet("tornet-random", 1.5, "tfrecord", "zlib"),
    "tornet-zlib-tf.data": _tornet("tornet-tensorflow", 1.5, "tfrecord", "zlib"),
    "tornet-none": _tornet("tornet-random", 5, "array_record", "none"),
    "tornet-none-tfrecord": _tornet("tornet-random", 5, "tfrecord", "none"),
    "tornet-none-tf.data": _tornet("tornet-tensorflow", 5, "tfrecord", "none"),
    "tornet-tar": _tornet("tornet-stream", 1.5),
    "tornet-build": _tornet_build,
    "select-in-cluster": _selection,
    "import": _import,
    "memory-4GB": _streaming("ours-records", "growth", "MiB", _MIB, 256),
    "memory-4GB-dataset": _streaming("ours-dataset", "growth", "MiB", _MIB, 256),
    "first-record-4GB": _streaming("ours-records", "sent", "MB", _MB, 16),
}
