"""AIStore lists the members of shards: the index gets lengths from it, and single records of .tar.gz are read."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import DuplicateKey, ObjectChanged, StrayMember
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.in_cluster import picking
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

REAL = pytest.param("real", marks=[pytest.mark.servers("aistore")])


@dataclass
class Bucket:
    name: str
    url: str
    store: AisStore

    def open(self, template: str, **options: Any) -> t2t.source.Source:
        return t2t.open(f"ais://{self.name}/{template}", endpoint=self.url, **options)

    def index(self, template: str, **options: Any) -> tuple[t2t.shard_index.Index, int]:
        """Build an index. Return it and the number of bytes that were read from shards."""
        source = self.open(template, index=False)
        with source:
            index = source.write_index(**options)
            return index, source.stats.bytes


@pytest.fixture(params=["embedded", REAL])
def index_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
    name = new_name()
    if request.param == "real":
        yield from _filled(name, request.getfixturevalue("aistore").url)
        return
    with t2t.serve(tmp_path) as server:
        yield from _filled(name, server.url)


def _filled(name: str, url: str) -> Iterator[Bucket]:
    store = AisStore(name, read_options(), endpoint=url)
    store.create()
    try:
        yield Bucket(name, url, store)
    finally:
        store.close()


def fields(number: int) -> dict[str, bytes]:
    return {"jpg": bytes(700 * (number % 3)) + b"%d" % number, "seg.png": b"", "cls": b"%d" % number}


def test_lengths_are_listed_without_reading_shards(index_bucket: Bucket) -> None:
    counts = {"0.tar": 5, "1.tar": 12, "2.tar.gz": 7, "3.tgz": 1}
    for name, count in counts.items():
        data = made.labelled(f"a b/{name.partition('.')[0]}", count, fields)
        index_bucket.store.put(f"in/{name}", made.gzipped(data) if "gz" in name else data)
    index, read = index_bucket.index("in/*", counts_only=True)
    assert {shard.name: shard.records for shard in index} == counts
    assert read == 0
    source = index_bucket.open("in/*")
    assert len(source) == 25
    assert source.dataset(batch=4).cardinality() == 7
    assert len(list(source.dataset(batch=4))) == 7
    assert source[-1]["cls"] == b"0"
    again, read = index_bucket.index("in/*", counts_only=True)
    assert (again.records, read) == (25, 0)
    placed, read = index_bucket.index("in/*")  # the listing has only lengths, so the shards are read
    assert placed.records == 25
    assert read > 0
    assert all(shard.placed for shard in placed)


def test_an_entry_is_valid_while_its_shard_is_unchanged(index_bucket: Bucket) -> None:
    index_bucket.store.put("0.tar", made.labelled("a", 3, fields))
    index_bucket.index("0.tar", counts_only=True)
    index_bucket.store.put("0.tar", made.labelled("a", 4, fields))
    assert index_bucket.open("0.tar").dataset(batch=1).cardinality() < 0
    index, _ = index_bucket.index("0.tar", counts_only=True)
    assert index.records == len(index_bucket.open("0.tar")) == 4


def links(target: str) -> bytes:
    """Return a tar of two records, and of a third one that has only a link."""
    buffer = io.BytesIO(made.labelled("a", 2, fields))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        link = tarfile.TarInfo("b.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, target
        archive.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "records"),
    [
        ("links.tar", links("a/000000.jpg"), 2),
        ("empty-fields.tar", made.labelled("a", 3, lambda _: {"x": b""}), 3),
        ("empty.tar", made.labelled("a", 0), 0),
        ("named-otherwise", made.labelled("a", 4, fields), 4),
        ("a.tar.bz2", made.gzipped(made.labelled("a", 4, fields)), 4),
    ],
)
def test_a_shard_with_an_ambiguous_listing_is_read(
    index_bucket: Bucket, name: str, data: bytes, records: int
) -> None:
    index_bucket.store.put(name, data)
    index, read = index_bucket.index(name, counts_only=True)
    assert index.records == records
    assert read > 0


def test_more_members_than_a_page_holds(index_bucket: Bucket) -> None:
    index_bucket.store.put("many.tar", made.labelled("a", 5_500, lambda number: {"x": b"1", "y": b"%d" % number}))
    index, _ = index_bucket.index("many.tar", counts_only=True)
    assert index.records == 5_500


def test_a_damaged_shard_raises_the_usual_error(index_bucket: Bucket) -> None:
    buffer = io.BytesIO(made.labelled("a", 2, fields))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        archive.addfile(tarfile.TarInfo("LICENSE"))
    index_bucket.store.put("stray.tar", buffer.getvalue())
    with pytest.raises(StrayMember):
        index_bucket.index("stray.tar", counts_only=True)
    index_bucket.store.put("twice.tar", made.tar([("a", {"x": b"1"}), ("b", {"x": b"1"}), ("a", {"x": b"2"})]))
    with pytest.raises(DuplicateKey):
        index_bucket.index("twice.tar", counts_only=True)


# Single records of compressed shards


NAMES = ["plain", "with space", "dots/in.folder/x", "a+b(c)[d]^$|{2}", "ünïcode", "a", "a.b/c"]


@pytest.fixture
def squeezed(index_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    records = [(name, {"jpg": name.encode() * 9, "seg.png": b"s", "cls": b"1"}) for name in NAMES]
    for number in range(2):
        index_bucket.store.put(f"{number}.tar.gz", made.gzipped(made.tar(records)))
    index_bucket.index("{0..1}.tar.gz")
    monkeypatch.setattr(picking, "_WORTH", 1)
    return index_bucket


def test_a_record_of_a_compressed_shard_is_read_alone(squeezed: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = list(squeezed.open("{0..1}.tar.gz").records())
    source = squeezed.open("{0..1}.tar.gz")
    assert len(source) == 14
    monkeypatch.setattr(picking, "read_part", _only_picked(picking.read_part))
    for number in range(1, 14):
        if number != 7:  # the first record of a shard is read from the shard
            assert source[number] == everything[number]
    assert source[3:6] == everything[3:6]
    assert source.select("cls", "seg.png")[4] == {
        name: everything[4][name] for name in ("__key__", "__shard__", "cls", "seg.png")
    }


def _only_picked(read_part: Any) -> Any:
    def read(shards: Any, *arguments: Any) -> Any:
        assert type(shards.store).__name__ == "_RecordStore", "the shard itself was read"
        return read_part(shards, *arguments)

    return read


def test_no_record_is_read_from_a_replaced_shard(squeezed: Bucket) -> None:
    source = squeezed.open("{0..1}.tar.gz")
    assert source[2]["__key__"] == NAMES[2]
    squeezed.store.put("0.tar.gz", made.gzipped(made.tar([(name, {"cls": b"2"}) for name in NAMES])))
    with pytest.raises(ObjectChanged):
        source[2]
