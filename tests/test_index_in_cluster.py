"""What AIStore, ours and a real one, says of what is in its shards: lengths, and single records out of .tar.gz."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.errors import DuplicateKey, ObjectChanged, StrayMember
from ais_tar2tf.reading import picking
from ais_tar2tf.source import read_options
from ais_tar2tf.stores.ais import AisStore
from places import new_name

REAL = pytest.param("real", marks=[pytest.mark.servers("aistore")])


@dataclass
class Bucket:
    name: str
    url: str
    store: AisStore

    def open(self, template: str, **options: Any) -> t2t.source.Source:
        return t2t.open(f"ais://{self.name}/{template}", endpoint=self.url, **options)

    def index(self, template: str, **options: Any) -> tuple[t2t.shard_index.Index, int]:
        """The index, and how many bytes of shards were read for it."""
        source = self.open(template, index=False)
        with source:
            index = source.write_index(**options)
            return index, source.stats.bytes


@pytest.fixture(params=["embedded", REAL])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
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


def test_a_length_is_listed_and_nothing_read(bucket: Bucket) -> None:
    counts = {"0.tar": 5, "1.tar": 12, "2.tar.gz": 7, "3.tgz": 1}
    for name, count in counts.items():
        data = made.labelled(f"a b/{name.partition('.')[0]}", count, fields)
        bucket.store.put(f"in/{name}", made.gzipped(data) if "gz" in name else data)
    index, read = bucket.index("in/*", counts_only=True)
    assert {shard.name: shard.records for shard in index} == counts
    assert read == 0
    source = bucket.open("in/*")
    assert len(source) == 25
    assert source.dataset(batch=4).cardinality() == 7
    assert len(list(source.dataset(batch=4))) == 7
    assert source[-1]["cls"] == b"0"
    again, read = bucket.index("in/*", counts_only=True)
    assert (again.records, read) == (25, 0)
    placed, read = bucket.index("in/*")  # more than lengths was never known
    assert placed.records == 25
    assert read > 0
    assert all(shard.placed for shard in placed)


def test_an_entry_is_true_as_long_as_its_shard(bucket: Bucket) -> None:
    bucket.store.put("0.tar", made.labelled("a", 3, fields))
    bucket.index("0.tar", counts_only=True)
    bucket.store.put("0.tar", made.labelled("a", 4, fields))
    assert bucket.open("0.tar").dataset(batch=1).cardinality() < 0
    index, _ = bucket.index("0.tar", counts_only=True)
    assert index.records == len(bucket.open("0.tar")) == 4


def links(target: str) -> bytes:
    """Two records, and one of which nothing but a link is there."""
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
def test_where_a_listing_leaves_a_doubt_the_shard_is_read(
    bucket: Bucket, name: str, data: bytes, records: int
) -> None:
    bucket.store.put(name, data)
    index, read = bucket.index(name, counts_only=True)
    assert index.records == records
    assert read > 0


def test_more_members_than_a_page_holds(bucket: Bucket) -> None:
    bucket.store.put("many.tar", made.labelled("a", 5_500, lambda number: {"x": b"1", "y": b"%d" % number}))
    index, _ = bucket.index("many.tar", counts_only=True)
    assert index.records == 5_500


def test_what_is_wrong_with_a_shard_is_told_as_ever(bucket: Bucket) -> None:
    buffer = io.BytesIO(made.labelled("a", 2, fields))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        archive.addfile(tarfile.TarInfo("LICENSE"))
    bucket.store.put("stray.tar", buffer.getvalue())
    with pytest.raises(StrayMember):
        bucket.index("stray.tar", counts_only=True)
    bucket.store.put("twice.tar", made.tar([("a", {"x": b"1"}), ("b", {"x": b"1"}), ("a", {"x": b"2"})]))
    with pytest.raises(DuplicateKey):
        bucket.index("twice.tar", counts_only=True)


# Single records out of compressed shards.


NAMES = ["plain", "with space", "dots/in.folder/x", "a+b(c)[d]^$|{2}", "ünïcode", "a", "a.b/c"]


@pytest.fixture
def squeezed(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    records = [(name, {"jpg": name.encode() * 9, "seg.png": b"s", "cls": b"1"}) for name in NAMES]
    for number in range(2):
        bucket.store.put(f"{number}.tar.gz", made.gzipped(made.tar(records)))
    bucket.index("{0..1}.tar.gz")
    monkeypatch.setattr(picking, "_WORTH", 1)
    return bucket


def test_a_record_of_a_compressed_shard_is_picked(squeezed: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = list(squeezed.open("{0..1}.tar.gz").records())
    source = squeezed.open("{0..1}.tar.gz")
    assert len(source) == 14
    monkeypatch.setattr(picking, "read_part", _only_picked(picking.read_part))
    for number in range(1, 14):
        if number != 7:  # the first of a shard is read
            assert source[number] == everything[number]
    assert source[3:6] == everything[3:6]
    assert source.select("cls", "seg.png")[4] == {
        name: everything[4][name] for name in ("__key__", "__shard__", "cls", "seg.png")
    }


def _only_picked(read_part: Any) -> Any:
    def read(shards: Any, *arguments: Any) -> Any:
        assert type(shards.store).__name__ == "_OneRecord", "the shard itself was read"
        return read_part(shards, *arguments)

    return read


def test_a_shard_that_was_replaced_since_is_not_picked_from(squeezed: Bucket) -> None:
    source = squeezed.open("{0..1}.tar.gz")
    assert source[2]["__key__"] == NAMES[2]
    squeezed.store.put("0.tar.gz", made.gzipped(made.tar([(name, {"cls": b"2"}) for name in NAMES])))
    with pytest.raises(ObjectChanged):
        source[2]
