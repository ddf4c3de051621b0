"""Shuffling in the cluster, by dSort on a real AIStore, or by batches of records without dSort."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import ais_tar2tf as t2t
from ais_tar2tf import cluster
from ais_tar2tf.cluster.server.lifecycle import Server
from ais_tar2tf.cluster.shuffling import ShuffleJob, ShuffleProgress
from ais_tar2tf.errors import ExportError, SchemaError, ShardNotFound, StoreError, UnsupportedArchive
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.clusters import ClusterCalls
from ais_tar2tf.streams.arguments import read_options
from tests.servers.aistore import AIStore
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

SHARDS, RECORDS = 4, 10
FULL = [pytest.mark.full, pytest.mark.servers("dsort")]


def fields(number: int) -> dict[str, bytes]:
    return {"jpg": bytes([number]) * (300 + number), "seg.png": b"s%d" % number, "cls": b"%d" % number}


def filled(url: str) -> str:
    bucket = new_name()
    store = AisStore(bucket, read_options(), endpoint=url)
    store.create()
    for number in range(SHARDS):
        store.put(f"in-{number}.tar", made.labelled(f"n{number}", RECORDS, fields))
    store.close()
    return bucket


def records(url: str, template: str) -> list[dict[str, Any]]:
    with t2t.open(template, endpoint=url) as src:
        return [{name: value for name, value in each.items() if name != "__shard__"} for each in src.records()]


def expected(url: str, bucket: str) -> list[dict[str, Any]]:
    return records(url, f"ais://{bucket}/in-{{0..3}}.tar")


def keyed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda record: record["__key__"])


# By dSort


@pytest.fixture
def sorted_bucket(aistore_dsort: AIStore) -> str:
    return filled(aistore_dsort.url)


def dsorted(cluster_: AIStore, bucket: str, out: str, **options: Any) -> list[str]:
    return cluster.shuffle(
        f"ais://{bucket}/in-{{0..3}}.tar", f"ais://{bucket}/{out}", endpoint=cluster_.url, **options
    )


@pytest.mark.full
@pytest.mark.servers("dsort")
def test_shards_are_shuffled_into_others_with_progress(aistore_dsort: AIStore, sorted_bucket: str) -> None:
    seen: list[ShuffleProgress] = []
    urls = dsorted(aistore_dsort, sorted_bucket, "out-{00..49}.tar", shard_size="4KB", seed=7, progress=seen.append)
    assert 3 <= len(urls) <= 20
    assert urls == [f"ais://{sorted_bucket}/out-{number:02d}.tar" for number in range(len(urls))]
    store = AisStore(sorted_bucket, read_options(), endpoint=aistore_dsort.url)
    assert [store.url(info.name) for info in store.list("out-")] == urls
    store.close()
    before, after = (
        expected(aistore_dsort.url, sorted_bucket),
        records(aistore_dsort.url, f"ais://{sorted_bucket}/out-*.tar"),
    )
    assert keyed(after) == keyed(before)  # every record with all its fields
    assert [each["__key__"] for each in after] != [each["__key__"] for each in before]
    assert (seen[-1].phase, seen[-1].extracted, seen[-1].created) == ("done", SHARDS, len(urls))
    assert [each.extracted for each in seen] == sorted(each.extracted for each in seen)


@pytest.mark.full
@pytest.mark.servers("dsort")
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"order": "name"}, lambda record: record["__key__"]),
        ({"order": "name", "descending": True}, lambda record: [-ord(each) for each in record["__key__"]]),
        ({"order": ("cls", "int")}, lambda record: int(record["cls"])),
        ({"order": ("cls", "int"), "descending": True}, lambda record: -int(record["cls"])),
    ],
)
def test_orders(
    aistore_dsort: AIStore, sorted_bucket: str, options: dict[str, Any], key: Callable[[Any], Any]
) -> None:
    dsorted(aistore_dsort, sorted_bucket, "out-{0..9}.tar", shard_size="10KB", **options)
    after = records(aistore_dsort.url, f"ais://{sorted_bucket}/out-*.tar")
    assert [key(each) for each in after] == sorted(map(key, expected(aistore_dsort.url, sorted_bucket)))
    assert keyed(after) == keyed(expected(aistore_dsort.url, sorted_bucket))


@pytest.mark.full
@pytest.mark.servers("dsort")
def test_errors_of_the_cluster_are_raised(aistore_dsort: AIStore, sorted_bucket: str) -> None:
    with pytest.raises(ExportError, match=r"aborted|read \d of 5"):
        cluster.shuffle(
            ["in-{0..3}.tar", "in-9.tar"], "out-{0..9}.tar", bucket=sorted_bucket, endpoint=aistore_dsort.url
        )
    with pytest.raises((ExportError, StoreError)):  # too few names
        dsorted(aistore_dsort, sorted_bucket, "few-{0..1}.tar", shard_size="1KB")
    urls = dsorted(aistore_dsort, sorted_bucket, "one-{0..9}.tar", shard_size="10KB")
    with pytest.raises(ExportError, match=r"one-0\.tar is there already: say replace=True"):
        dsorted(aistore_dsort, sorted_bucket, "one-{0..9}.tar")
    again = dsorted(aistore_dsort, sorted_bucket, "one-{0..9}.tar", shard_size="1GB", replace=True)
    assert len(again) < len(urls)
    assert (
        len(records(aistore_dsort.url, f"ais://{sorted_bucket}/one-*.tar")) == SHARDS * RECORDS
    )  # and none of before


@pytest.mark.full
@pytest.mark.servers("dsort")
def test_a_job_is_aborted(aistore_dsort: AIStore) -> None:
    bucket = new_name()
    store = AisStore(bucket, read_options(), endpoint=aistore_dsort.url)
    store.create()
    for number in range(24):  # so many that the job still runs when it is aborted
        store.put(f"in-{number}.tar", made.labelled(f"n{number}", 400, lambda _: {"bin": bytes(30_000), "cls": b"1"}))
    store.close()
    job = cluster.shuffle(
        f"ais://{bucket}/in-{{0..23}}.tar", f"ais://{bucket}/out-{{0..999}}.tar", shard_size="1MB",
        endpoint=aistore_dsort.url, wait=False,
    )  # fmt: skip
    assert isinstance(job, ShuffleJob)
    assert job.progress().phase != "done"
    job.abort()
    with pytest.raises(ExportError, match="was aborted"):
        job.wait()


# Without it


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.servers("aistore"))])
def plain_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("aistore").url
        return
    with t2t.serve(tmp_path) as server:
        yield server.url


def test_a_cluster_without_dsort_says_what_is_missing(plain_cluster: str) -> None:
    bucket = filled(plain_cluster)
    with pytest.raises(StoreError, match=r"built without -tags=dsort; local=True"):
        cluster.shuffle("in-{0..3}.tar", "out-{0..9}.tar", bucket=bucket, endpoint=plain_cluster)


@pytest.mark.parametrize("indexed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_shards_are_shuffled_locally_on_request(plain_cluster: str, indexed: bool) -> None:
    bucket = filled(plain_cluster)
    template = f"ais://{bucket}/in-{{0..3}}.tar"
    if indexed:
        t2t.index(template, endpoint=plain_cluster)
    options: dict[str, Any] = {"endpoint": plain_cluster, "local": True, "shard_size": 10_000}
    urls = cluster.shuffle(template, f"ais://{bucket}/out-{{00..49}}.tar", seed=3, **options)
    again = cluster.shuffle(template, f"ais://{bucket}/again-{{00..49}}.tar", seed=3, **options)
    other = cluster.shuffle(template, f"ais://{bucket}/other-{{00..49}}.tar", seed=4, **options)
    found = [records(plain_cluster, f"ais://{bucket}/{name}-*.tar") for name in ("out", "again", "other")]
    assert found[0] == found[1]
    assert found[0] != found[2]
    for each in found:
        assert each != expected(plain_cluster, bucket)
        assert keyed(each) == keyed(expected(plain_cluster, bucket))
    assert len(urls) == len(again) == len(other) > 4
    store = AisStore(bucket, read_options(), endpoint=plain_cluster)
    for url in urls:
        body = requests.get(f"{plain_cluster}/v1/objects/{bucket}/{url.rpartition('/')[2]}", timeout=20).content
        assert len(body) <= 10_000
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            assert len(archive.getnames()) % 3 == 0
    in_order = cluster.shuffle(template, f"ais://{bucket}/order-{{00..49}}.tar", order="none", **options)
    assert records(plain_cluster, f"ais://{bucket}/order-*.tar") == expected(plain_cluster, bucket)
    assert store.head(in_order[0].rpartition("/")[2]).size is not None
    store.close()


def test_shards_that_cannot_be_shuffled_locally(plain_cluster: str) -> None:
    bucket = filled(plain_cluster)
    options: dict[str, Any] = {"bucket": bucket, "endpoint": plain_cluster, "local": True}
    with pytest.raises(SchemaError, match="without dSort, order is one of random, none"):
        cluster.shuffle("in-{0..3}.tar", "out-{0..9}.tar", order="name", **options)
    with pytest.raises(ExportError, match="1 names are too few"):
        cluster.shuffle("in-{0..3}.tar", "few-{0..0}.tar", shard_size="5KB", **options)
    with pytest.raises(ShardNotFound, match=r"in-4\.tar"):
        cluster.shuffle("in-{0..4}.tar", "none-{0..9}.tar", **options)
    store = AisStore(bucket, read_options(), endpoint=plain_cluster)
    store.put("in-0.tar.gz", made.gzipped(made.labelled("n0", 3, fields)))
    store.close()
    with pytest.raises(UnsupportedArchive, match=r"in-0\.tar\.gz"):
        cluster.shuffle("in-0.tar.gz", "out-{0..9}.tar", **options)


def test_old_shards_stay_when_a_shuffle_is_refused(plain_cluster: str) -> None:
    bucket = filled(plain_cluster)
    store = AisStore(bucket, read_options(), endpoint=plain_cluster)
    store.put("gz-0.tar.gz", made.gzipped(made.labelled("n0", 3, fields)))
    old = made.labelled("old", 2, fields)
    for name in ("out-0.tar", "out-9.tar"):
        store.put(name, old)
    refusals: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("in-{0..3}.tar", {}, StoreError),
        ("in-{0..3}.tar", {"local": True, "order": "name"}, SchemaError),
        ("in-{0..3}.tar", {"local": True, "shard_size": "1KB"}, ExportError),
        ("in-{0..4}.tar", {"local": True}, ShardNotFound),
        ("gz-0.tar.gz", {"local": True}, UnsupportedArchive),
    ]
    for template, options, error in refusals:
        with pytest.raises(error):
            cluster.shuffle(
                template, "out-{0..9}.tar", bucket=bucket, endpoint=plain_cluster, replace=True, **options
            )
        assert [info.size for info in store.list("out-")] == [len(old)] * 2
    urls = cluster.shuffle(
        "in-{0..3}.tar", "out-{0..9}.tar", bucket=bucket, endpoint=plain_cluster, replace=True, local=True
    )
    assert [info.name for info in store.list("out-")] == [url.rpartition("/")[2] for url in urls] == ["out-0.tar"]
    store.close()


@pytest.fixture
def still_open(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that holds the connections to clusters that were opened and not closed."""
    found: list[object] = []
    for kind in (AisStore, ClusterCalls):
        open_, close = kind.__init__, kind.close

        def opened(self: Any, *args: Any, _open: Any = open_, **options: Any) -> None:
            _open(self, *args, **options)
            found.append(self)

        def closed(self: Any, _close: Any = close) -> None:
            _close(self)
            found.remove(self)

        monkeypatch.setattr(kind, "__init__", opened)
        monkeypatch.setattr(kind, "close", closed)
    return found


def test_no_connection_stays_open(plain_cluster: str, still_open: list[object]) -> None:
    bucket = filled(plain_cluster)
    texts = [f"in-{number}.tar" for number in range(SHARDS)]
    options: dict[str, Any] = {"bucket": bucket, "endpoint": plain_cluster, "wait": False}
    assert len(cluster.shuffle(texts, "out-{0..9}.tar", local=True, **options)) == 1
    assert not still_open
    with pytest.raises(StoreError, match="built without"):
        cluster.shuffle(texts, "other-{0..9}.tar", **options)
    assert not still_open
    with pytest.raises(SchemaError, match="have one extension"):
        cluster.shuffle(texts, "other-{0..9}", **options)
    with pytest.raises(ShardNotFound, match="nothing matches"):
        cluster.shuffle("nothing-*.tar", "other-{0..9}.tar", **options)
    assert not still_open


@pytest.fixture(scope="module")
def server_without_dsort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with t2t.serve(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize(
    ("template", "out", "options", "why"),
    [
        ("in-{0..3}.tar", "out-{0..9}.tar", {"order": "nonsense"}, "order is one of random, name, md5, none"),
        ("in-{0..3}.tar", "out-{0..9}.tar", {"order": ("cls", "date")}, "one of int, float, string"),
        ("in-{0..3}.tar", "out-{0..9}.tar", {"order": ["cls", "int"]}, r"or \(field, type\), not \['cls', 'int'\]"),
        ("in-{0..3}.tar", "out-{0..9}.tar", {"order": ("cls",)}, r"one of int, float, string\), not \('cls',\)"),
        ("in-{0..3}.tar", "out-{0..9}.tar", {"seed": -1}, "a seed is not negative"),
        ("in-{0..3}.tar", "out-{0..9}.tar", {"bucket": None}, "names no bucket"),
        ("in-{0..3}.tar", "out-{0..9}", {}, "have one extension"),
        (["in-0.tar", "in-0.tar.gz"], "out-{0..9}.tar", {}, "have one extension"),
        ("s3://b/in-{0..3}.tar", "out-{0..9}.tar", {}, "not by s3://"),
        ([], "out-{0..9}.tar", {}, "no shards are named"),
        ("in-{0..3}.tar", "in-{3..9}.tar", {"replace": True}, r"'in-3\.tar' would be read and written at once"),
        (["ais://x/in-0.tar", "ais://y/in-1.tar"], "out-{0..9}.tar", {}, "are in one bucket"),
    ],
)
def test_invalid_arguments_are_refused_before_any_request(
    server_without_dsort: Server, template: Any, out: str, options: dict[str, Any], why: str
) -> None:
    asked = len(server_without_dsort.requests)
    with pytest.raises(SchemaError, match=why):
        cluster.shuffle(template, out, **{"bucket": "b", "endpoint": server_without_dsort.url, **options})
    assert len(server_without_dsort.requests) == asked


def report(**changed: Any) -> dict[str, Any]:
    """Return a target's report on a job, with the fields that the progress uses."""
    metrics = {
        "local_extraction": {"finished": True, "extracted_count": "2"},
        "shard_creation": {"running": False, "created_count": "1", "to_create": "1"},
        "aborted": False,
    }
    return {"aborted": False, "archived": True, "Metrics": {**metrics, **changed.pop("metrics", {})}, **changed}


progress_of = ShuffleProgress.from_targets


def test_a_job_is_done_when_all_targets_are() -> None:
    assert progress_of([report(), report()], 4) == ShuffleProgress("done", 4, 4, 2, 2)
    assert progress_of([report(), report(archived=False)], 4).phase == "sorting"
    running = {"shard_creation": {"running": True, "created_count": "0", "to_create": "3"}}
    assert progress_of([report(), report(archived=False, metrics=running)], 4) == ShuffleProgress(
        "writing", 4, 4, 1, 4
    )
    begun = {"local_extraction": {"finished": False, "extracted_count": "1"}}
    assert progress_of([report(), report(archived=False, metrics=begun)], 4) == ShuffleProgress("reading", 3, 4, 2, 2)
    failed = progress_of([report(), report(aborted=True, metrics={"errors": ["no space"]})], 4)
    assert (failed.aborted, failed.errors) == (True, ("no space",))
    assert progress_of([], 4).phase != "done"
