"""An index that was written over another store, or for a copy of the shards, is used or refused with the reason."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import IndexMissing, ObjectChanged
from ais_tar2tf.options import Limits, Read
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.streams.index import proof as index_proof
from ais_tar2tf.streams.index.shards import INDEX_NAME, Index
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

COUNT = 20
FILES = "{0..2}.tar"


@pytest.fixture
def bucket_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "b"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.tar").write_bytes(shard(number))
    return folder


def shard(number: int, label: int = 0) -> bytes:
    return made.labelled(f"s{number}", COUNT, lambda at: {"cls": b"%03d" % (at + label)})


@pytest.fixture
def folder_server(bucket_folder: Path) -> Iterator[t2t.serve]:
    with t2t.serve(bucket_folder.parent) as found:
        yield found


def of_files(bucket: Path, **options: object) -> t2t.Source:
    return t2t.open(f"{bucket}/{FILES}", **options)


def index_over_ais(server: t2t.serve) -> Index:
    return t2t.index(f"ais://b/{FILES}", endpoint=server.url)


def check(source: t2t.Source) -> None:
    assert len(source) == 3 * COUNT
    assert source[COUNT + 7]["__key__"] == "s1/000007"
    assert source[-1]["cls"] == b"019"
    assert len(source.dataset(start_at=50)) == 10


def test_an_index_over_ais_for_the_same_shards_as_files(bucket_folder: Path, folder_server: t2t.serve) -> None:
    index_over_ais(folder_server)
    check(of_files(bucket_folder))


def test_an_index_over_files_for_the_same_shards_in_ais(bucket_folder: Path, folder_server: t2t.serve) -> None:
    t2t.index(f"{bucket_folder}/{FILES}")
    check(t2t.open(f"ais://b/{FILES}", endpoint=folder_server.url))
    check(t2t.open(f"{folder_server.target_url}/v1/objects/b/{FILES}"))


def test_an_index_over_files_for_a_copy(bucket_folder: Path, tmp_path: Path) -> None:
    t2t.index(f"{bucket_folder}/{FILES}")
    shutil.copytree(bucket_folder, tmp_path / "copy")
    check(of_files(tmp_path / "copy"))


def test_an_index_in_another_folder(bucket_folder: Path, folder_server: t2t.serve, tmp_path: Path) -> None:
    t2t.index(f"ais://b/{FILES}", tmp_path / "kept.t2t", endpoint=folder_server.url)
    check(of_files(bucket_folder, index=tmp_path / "kept.t2t"))


@pytest.mark.parametrize("number", [0, 2])
def test_an_index_is_refused_for_another_content_of_the_same_size(
    bucket_folder: Path, folder_server: t2t.serve, number: int
) -> None:
    index_over_ais(folder_server)
    assert len(shard(number)) == len(shard(number, label=5))
    (bucket_folder / f"{number}.tar").write_bytes(shard(number, label=5))
    with pytest.raises(IndexMissing, match=rf"older than shard '.*{number}\.tar', whose checksum"):
        len(of_files(bucket_folder))
    assert of_files(bucket_folder).dataset().cardinality() < 0


def test_a_different_size_is_reported(bucket_folder: Path, folder_server: t2t.serve) -> None:
    index_over_ais(folder_server)
    with (bucket_folder / "1.tar").open("ab") as file:
        file.write(bytes(10_240))
    with pytest.raises(IndexMissing, match=r"older than shard '.*1\.tar', whose size"):
        len(of_files(bucket_folder))


def test_shards_that_are_too_large_to_hash(bucket_folder: Path, folder_server: t2t.serve) -> None:
    index_over_ais(folder_server)
    with pytest.raises(IndexMissing, match=r"over Limits\.proved_bytes \(1,000\)"):
        len(of_files(bucket_folder, limits=Limits(proved_bytes=1_000)))


def test_without_a_checksum_the_reason_is_reported(bucket_folder: Path, folder_server: t2t.serve) -> None:
    index = index_over_ais(folder_server)
    entries = [replace(each, identity=replace(each.identity, checksum="")) for each in index]
    (bucket_folder / INDEX_NAME).write_bytes(Index("first-dot", entries).to_bytes())
    with pytest.raises(IndexMissing, match="or the index was written over another store"):
        len(of_files(bucket_folder))


def test_files_are_hashed_once_in_a_process(
    bucket_folder: Path, folder_server: t2t.serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_over_ais(folder_server)
    hashed: list[str] = []
    running = index_proof._running

    def counted(path: str, identity: Identity) -> object:
        hashed.append(path)
        return running(path, identity)

    monkeypatch.setattr(index_proof, "_running", counted)
    for _ in range(3):
        assert len(of_files(bucket_folder)) == 3 * COUNT
    assert sorted(hashed) == [str(bucket_folder / f"{number}.tar") for number in range(3)]


def test_a_file_that_changes_later_is_detected(bucket_folder: Path, folder_server: t2t.serve) -> None:
    index_over_ais(folder_server)
    source = of_files(bucket_folder)
    assert len(source) == 3 * COUNT
    (bucket_folder / "1.tar").write_bytes(shard(1, label=5))
    os.utime(bucket_folder / "1.tar", (1_000_000_000, 1_000_000_000))
    with pytest.raises(ObjectChanged):
        source[COUNT + 1]


def test_many_shards_are_not_checked_one_by_one(
    bucket_folder: Path, folder_server: t2t.serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    t2t.index(f"{bucket_folder}/{FILES}")
    monkeypatch.setattr(index_proof, "_MOST_ASKED", 2)
    with pytest.raises(IndexMissing, match="written over another store"):
        len(t2t.open(f"ais://b/{FILES}", endpoint=folder_server.url))


# The shards and their index are copied to a store that states neither versions nor checksums.


@pytest.fixture
def plain_web_url(bucket_folder: Path) -> Iterator[str]:
    """Serve the folder like `python -m http.server`, which states only Last-Modified."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(bucket_folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def check_ignored(url: str, caplog: pytest.LogCaptureFixture, **options: Any) -> None:
    """Check that no order uses the offsets of an index that cannot be verified."""
    source = t2t.open(url, **options)
    keys = sorted(record["__key__"] for record in source.records())
    assert len(keys) == len(set(keys)) == 3 * COUNT
    orders: list[dict[str, Any]] = [{"shuffle": True, "seed": 1}, {"shuffle": 8, "seed": 1}]
    for order in orders:
        assert sorted(record["__key__"] for record in source.records(**order)) == keys
    hosts = [list(t2t.open(url, **options).records(shard=(host, 5))) for host in range(5)]
    assert sorted(record["__key__"] for host in hosts for record in host) == keys
    assert sum(1 for _ in source.records(start_at=50)) == 10
    assert "index ignored: the index at" in caplog.text
    for needs in (lambda: len(source), lambda: source[5], lambda: list(source.records(shuffle="global", seed=1))):
        with pytest.raises(IndexMissing, match=r"written over another store; write one by t2t\.index"):
            needs()


def test_an_index_over_files_that_a_web_server_serves(
    bucket_folder: Path, plain_web_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        os.utime(bucket_folder / f"{number}.tar", (1_000_000_000, 1_000_000_000))
    t2t.index(f"{bucket_folder}/{FILES}")
    check_ignored(f"{plain_web_url}/{FILES}", caplog)


@pytest.mark.servers("minio")
def test_an_index_over_files_that_are_copied_to_s3(
    bucket_folder: Path, minio: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in minio.environment.items():
        monkeypatch.setenv(name, value)
    t2t.index(f"{bucket_folder}/{FILES}")
    store = CloudStore("s3", name := new_name(), Read(), endpoint=minio.url)
    store.create()
    for path in bucket_folder.iterdir():
        store.put(path.name, path.read_bytes())
    store.close()
    check_ignored(f"s3://{name}/{FILES}", caplog, endpoint=minio.url)
    t2t.index(f"s3://{name}/{FILES}", endpoint=minio.url)
    check(t2t.open(f"s3://{name}/{FILES}", endpoint=minio.url))
