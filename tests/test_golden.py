"""What an earlier version left on disk is read, and gone on with: `golden/README.md` says what made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.plan import Position
from ais_tar2tf.stores.memory import MemoryStore
from record_files import tree

GOLDEN = Path(__file__).parent / "golden"
URL = "memory://golden/{0..2}.tar"


@pytest.fixture(autouse=True)
def shards() -> None:
    """The shards that the files were made of; byte for byte, and under their first version."""
    store = MemoryStore("golden")
    for number in range(3):
        store.delete(f"{number}.tar")
        store.put(f"{number}.tar", made.labelled(f"s{number}", 4, lambda n: {"x": b"%d" % n}))


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / name, tmp_path / name))


def fresh(tmp_path: Path, **options: object) -> Path:
    with t2t.open(URL, index=False) as source:
        source.export(tmp_path / "fresh", **options)
    return tmp_path / "fresh"


@pytest.mark.parametrize("name", ["index.t2t", "wids.json"])
def test_an_index_without_a_checksum_is_believed(name: str) -> None:
    with t2t.open(URL, index=False) as source:
        keys = [record["__key__"] for record in source.records()]
    with t2t.open(URL, index=GOLDEN / name) as source:
        assert len(source) == len(keys) == 12
        if name == "index.t2t":
            assert [source[number]["__key__"] for number in (0, 5, 10, -1)] == [keys[n] for n in (0, 5, 10, 11)]


def test_an_export_without_checksums_is_whole(tmp_path: Path) -> None:
    written = t2t.load(copied("export", tmp_path))
    written.verify()
    assert len(written) == 12
    new = tree(fresh(tmp_path, shard_records=5, idx=True))
    old = tree(tmp_path / "export")
    assert {name: old[name] for name in old if "tfrecord" in name} == {
        name: new[name] for name in new if "tfrecord" in name
    }


def test_a_broken_export_is_gone_on_with(tmp_path: Path) -> None:
    out = copied("half", tmp_path)
    with t2t.open(URL, index=False) as source:
        source.export(out, shard_records=3)
        assert source.stats.records_read < 12  # what was finished is not read again
    assert tree(out) == tree(fresh(tmp_path, shard_records=3))


def test_the_parts_of_a_job_array_are_published(tmp_path: Path) -> None:
    out = copied("parts", tmp_path)
    t2t.finish(out)
    assert tree(out) == tree(fresh(tmp_path, align="shard"))


def test_a_position_has_the_same_text() -> None:
    text = (GOLDEN / "position-sealed.txt").read_text().strip()
    assert Position.from_text(text).to_text() == text


def test_a_position_without_a_checksum_is_gone_on_from() -> None:
    old = (GOLDEN / "position.txt").read_text().strip()
    assert Position.from_text(old) == Position.from_text((GOLDEN / "position-sealed.txt").read_text().strip())
    inner = json.loads((GOLDEN / "mixture.txt").read_text())[1]
    for text, *_ in inner:
        assert Position.from_text(text).to_text().startswith(text[:-1])
