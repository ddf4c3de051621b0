"""An index that was written over another store, or for a copy: recognised, or refused with the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf import index_proof
from ais_tar2tf.errors import IndexMissing, ObjectChanged
from ais_tar2tf.options import Limits
from ais_tar2tf.shard_index import INDEX_NAME, Index
from ais_tar2tf.stores import Identity

COUNT = 20
FILES = "{0..2}.tar"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "b"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.tar").write_bytes(shard(number))
    return folder


def shard(number: int, label: int = 0) -> bytes:
    return made.labelled(f"s{number}", COUNT, lambda at: {"cls": b"%03d" % (at + label)})


@pytest.fixture
def server(bucket: Path) -> Iterator[t2t.serve]:
    with t2t.serve(bucket.parent) as found:
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


def test_of_ais_for_the_same_shards_as_files(bucket: Path, server: t2t.serve) -> None:
    index_over_ais(server)
    check(of_files(bucket))


def test_of_files_for_the_same_shards_in_ais(bucket: Path, server: t2t.serve) -> None:
    t2t.index(f"{bucket}/{FILES}")
    check(t2t.open(f"ais://b/{FILES}", endpoint=server.url))
    check(t2t.open(f"{server.target_url}/v1/objects/b/{FILES}"))


def test_of_files_for_a_copy_of_them(bucket: Path, tmp_path: Path) -> None:
    t2t.index(f"{bucket}/{FILES}")
    shutil.copytree(bucket, tmp_path / "copy")
    check(of_files(tmp_path / "copy"))


def test_kept_elsewhere(bucket: Path, server: t2t.serve, tmp_path: Path) -> None:
    t2t.index(f"ais://b/{FILES}", tmp_path / "kept.t2t", endpoint=server.url)
    check(of_files(bucket, index=tmp_path / "kept.t2t"))


@pytest.mark.parametrize("number", [0, 2])
def test_another_content_of_the_same_size_is_never_believed(bucket: Path, server: t2t.serve, number: int) -> None:
    index_over_ais(server)
    assert len(shard(number)) == len(shard(number, label=5))
    (bucket / f"{number}.tar").write_bytes(shard(number, label=5))
    with pytest.raises(IndexMissing, match=rf"older than shard '.*{number}\.tar', whose checksum"):
        len(of_files(bucket))
    assert of_files(bucket).dataset().cardinality() < 0


def test_another_size_is_named(bucket: Path, server: t2t.serve) -> None:
    index_over_ais(server)
    with (bucket / "1.tar").open("ab") as file:
        file.write(bytes(10_240))
    with pytest.raises(IndexMissing, match=r"older than shard '.*1\.tar', whose size"):
        len(of_files(bucket))


def test_more_bytes_than_are_to_be_read_for_it(bucket: Path, server: t2t.serve) -> None:
    index_over_ais(server)
    with pytest.raises(IndexMissing, match=r"over Limits\.proved_bytes \(1,000\)"):
        len(of_files(bucket, limits=Limits(proved_bytes=1_000)))


def test_without_a_checksum_the_reason_is_said(bucket: Path, server: t2t.serve) -> None:
    index = index_over_ais(server)
    entries = [replace(each, identity=replace(each.identity, checksum="")) for each in index]
    (bucket / INDEX_NAME).write_bytes(Index("first-dot", entries).to_bytes())
    with pytest.raises(IndexMissing, match="or the index was written over another store"):
        len(of_files(bucket))


def test_files_are_hashed_once_in_a_process(bucket: Path, server: t2t.serve, monkeypatch: pytest.MonkeyPatch) -> None:
    index_over_ais(server)
    hashed: list[str] = []
    running = index_proof._running

    def counted(path: str, identity: Identity) -> object:
        hashed.append(path)
        return running(path, identity)

    monkeypatch.setattr(index_proof, "_running", counted)
    for _ in range(3):
        assert len(of_files(bucket)) == 3 * COUNT
    assert sorted(hashed) == [str(bucket / f"{number}.tar") for number in range(3)]


def test_a_file_that_changes_later_is_found_out(bucket: Path, server: t2t.serve) -> None:
    index_over_ais(server)
    source = of_files(bucket)
    assert len(source) == 3 * COUNT
    (bucket / "1.tar").write_bytes(shard(1, label=5))
    os.utime(bucket / "1.tar", (1_000_000_000, 1_000_000_000))
    with pytest.raises(ObjectChanged):
        source[COUNT + 1]


def test_many_shards_are_not_asked_one_by_one(
    bucket: Path, server: t2t.serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    t2t.index(f"{bucket}/{FILES}")
    monkeypatch.setattr(index_proof, "_MOST_ASKED", 2)
    with pytest.raises(IndexMissing, match="written over another store"):
        len(t2t.open(f"ais://b/{FILES}", endpoint=server.url))
