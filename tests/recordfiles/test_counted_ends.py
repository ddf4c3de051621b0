"""Wrong counts in indexes, positions and documents next to record files are detected and never used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import CheckpointError, ExportError, StoreError
from ais_tar2tf.options import Shuffle
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.order import Plan, Position
from tests.support import shards as made

SHARDS, EACH = 3, 10
URL = "memory://counted/{0..2}.tar"


@pytest.fixture(scope="module", autouse=True)
def counted_shards() -> None:
    store = MemoryStore("counted")
    for number in range(SHARDS):
        store.put(f"{number}.tar", made.labelled(f"s{number}", EACH, lambda n: {"x": b"%d" % n}))


@pytest.fixture(params=["the first", "the last"])
def lying(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Write an index without a checksum, as other programs do. `lying(-1)` counts one record too few in a shard."""
    shard = 0 if request.param == "the first" else SHARDS - 1
    t2t.index(URL, out=tmp_path / "true.json")
    said = json.loads((tmp_path / "true.json").read_text())
    del said["checksum"]

    def make(wrong: int) -> Path:
        said["shardlist"][shard]["nsamples"] = EACH + wrong
        (tmp_path / "lying.json").write_text(json.dumps(said))
        return tmp_path / "lying.json"

    return make


def share(source: Any, even: str | None, hosts: int, host: int) -> int:
    options = {"shard": (host, hosts), "even": even} if hosts > 1 else {}
    return len(list(source.dataset(**options)))


@pytest.mark.parametrize("wrong", [-1, 1])
@pytest.mark.parametrize("hosts", [1, 2, 2 * SHARDS])
def test_an_index_that_counts_wrong_loses_no_record_silently(lying: Any, wrong: int, hosts: int) -> None:
    """In an earlier version, six hosts that shared three shards lost 1 of 30 records without an error."""
    with t2t.open(URL, index=lying(wrong)) as source:
        try:
            found = sum(share(source, None, hosts, host) for host in range(hosts))
        except StoreError as error:
            assert "write it again by t2t.index" in str(error)  # noqa: PT017
        else:
            pytest.fail(f"{found} records and no error")


@pytest.mark.parametrize("hosts", [1, 2, 2 * SHARDS])
def test_an_index_that_counts_right_gives_all(lying: Any, hosts: int) -> None:
    with t2t.open(URL, index=lying(0)) as source:
        assert sum(share(source, None, hosts, host) for host in range(hosts)) == SHARDS * EACH
        each = {share(source, "stop", hosts, host) for host in range(hosts)}
        assert len(each) == 1


def test_hosts_that_stop_together_stop_at_the_right_record(lying: Any) -> None:
    """With an index that counts one record too few, all six hosts would stop one record early."""
    with t2t.open(URL, index=lying(-1)) as source:
        refused = 0
        for host in range(2 * SHARDS):
            try:
                share(source, "stop", 2 * SHARDS, host)
            except StoreError as error:
                assert "write it again by t2t.index" in str(error)  # noqa: PT017
                refused += 1
        assert refused


def test_two_wrong_counts_with_the_right_sum_are_detected(tmp_path: Path) -> None:
    t2t.index(URL, out=tmp_path / "index.json")
    said = json.loads((tmp_path / "index.json").read_text())
    del said["checksum"]
    said["shardlist"][0]["nsamples"] -= 1
    said["shardlist"][1]["nsamples"] += 1
    (tmp_path / "index.json").write_text(json.dumps(said))
    with (
        t2t.open(URL, index=tmp_path / "index.json") as source,
        pytest.raises(StoreError, match=r"0\.tar: the shard has 10 records, and its index says 9"),
    ):
        list(source.dataset())


# Positions


def test_every_flipped_bit_of_a_position_is_detected() -> None:
    position = Plan(5, Shuffle(window=4, seed=1)).begin(0, 1, 2)
    text = position.to_text()
    for at in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text.encode())
            damaged[at] ^= 1 << bit
            with pytest.raises(CheckpointError):
                Position.from_text(damaged.decode("utf-8", "surrogateescape"))


def test_a_well_formed_change_of_a_position_is_detected() -> None:
    """A well-formed position of another epoch would be resumed at the wrong record."""
    text = Plan(5).begin(3, 1, 9).to_text()
    changed = text.replace("]],3,1,", "]],2,1,", 1)
    assert changed != text
    with pytest.raises(CheckpointError, match="its checksum does not match"):
        Position.from_text(changed)


def test_a_mixtures_position_is_sealed_too() -> None:
    with t2t.open(URL, index=False) as one, t2t.open(URL, index=False) as other:
        reading = t2t.mix([one, other], seed=1).dataset().source.request.reading
        text = reading.begin(0, 1, 1).to_text()
        assert reading.parse(text).to_text() == text
        with pytest.raises(CheckpointError, match="its checksum does not match"):
            reading.parse(text.replace(",0,", ",1,", 1))


# Documents next to record files


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with t2t.open(URL, index=False) as source:
        source.export(tmp_path / "out", idx=True)
    t2t.load(tmp_path / "out").verify()
    return tmp_path / "out"


def test_verify_reads_the_indexes_next_to_the_files(exported: Path) -> None:
    (index,) = exported.glob("*.idx")
    lines = index.read_bytes().splitlines(keepends=True)
    begin, size = map(int, lines[3].split())
    following = int(lines[4].split()[1])
    moved = [b"%d %d\n" % (begin, size + 4), b"%d %d\n" % (begin + size + 4, following - 4)]
    for damaged in (lines[:-1], [*lines[:3], *moved, *lines[5:]], [b"x\n"]):
        index.write_bytes(b"".join(damaged))
        with pytest.raises(ExportError, match=r"\.idx: the index is damaged"):
            t2t.load(exported).verify()
    index.unlink()
    with pytest.raises(StoreError, match=r"\.idx"):
        t2t.load(exported).verify()


def test_verify_compares_the_features_that_tfds_reads(exported: Path) -> None:
    features = exported / "features.json"
    said = features.read_text()
    for damaged in (said.replace("int64", "int32"), said[:-5], "[]", "[" * 100_000, said.replace("bytes", "string")):
        if damaged == said:
            continue
        features.write_text(damaged)
        with pytest.raises(ExportError, match=r"features\.json"):
            t2t.load(exported).verify()
    features.write_text(json.dumps(json.loads(said)))  # spaces do not matter
    t2t.load(exported).verify()
