"""Read and continue files that earlier versions wrote. `golden/README.md` says which version wrote which file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.order import Position
from tests.golden import make
from tests.support import shards as made
from tests.support.record_folders import tree

GOLDEN = Path(__file__).parents[1] / "golden"
URL = "memory://golden/{0..2}.tar"


@pytest.fixture(autouse=True)
def golden_shards() -> None:
    """Store the shards from which the files were made, with the same bytes and the same version."""
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
def test_an_index_without_a_checksum_is_used(name: str) -> None:
    with t2t.open(URL, index=False) as source:
        keys = [record["__key__"] for record in source.records()]
    with t2t.open(URL, index=GOLDEN / name) as source:
        assert len(source) == len(keys) == 12
        if name == "index.t2t":
            assert [source[number]["__key__"] for number in (0, 5, 10, -1)] == [keys[n] for n in (0, 5, 10, 11)]


def test_an_export_without_checksums_is_read(tmp_path: Path) -> None:
    written = t2t.load(copied("export", tmp_path))
    written.verify()
    assert len(written) == 12
    new = tree(fresh(tmp_path, shard_records=5, idx=True))
    old = tree(tmp_path / "export")
    assert {name: old[name] for name in old if "tfrecord" in name} == {
        name: new[name] for name in new if "tfrecord" in name
    }


def test_an_interrupted_export_is_resumed(tmp_path: Path) -> None:
    out = copied("half", tmp_path)
    with t2t.open(URL, index=False) as source:
        source.export(out, shard_records=3)
        assert source.stats.records_read < 12  # finished parts are not read again
    assert tree(out) == tree(fresh(tmp_path, shard_records=3))


def test_the_parts_of_a_job_array_are_published(tmp_path: Path) -> None:
    out = copied("parts", tmp_path)
    t2t.finish(out)
    assert tree(out) == tree(fresh(tmp_path, align="shard"))


def test_a_position_has_the_same_text() -> None:
    text = (GOLDEN / "position-sealed.txt").read_text().strip()
    assert Position.from_text(text).to_text() == text


def test_a_position_without_a_checksum_is_resumed() -> None:
    old = (GOLDEN / "position.txt").read_text().strip()
    assert Position.from_text(old) == Position.from_text((GOLDEN / "position-sealed.txt").read_text().strip())
    inner = json.loads((GOLDEN / "mixture.txt").read_text())[1]
    for text, *_ in inner:
        assert Position.from_text(text).to_text().startswith(text[:-1])


def iterated(dataset: Any, checkpoint: str) -> list[int]:
    """Return the records that follow a checkpoint."""
    iterator = iter(dataset)
    tf.train.Checkpoint(iterator=iterator).read(str(GOLDEN / "sealed/checkpoint" / checkpoint)).assert_consumed()
    return [int(value) for value in iterator]


def test_a_tensorflow_checkpoint_is_resumed() -> None:
    whole = [int(value) for value in make.dataset()]
    assert sorted(whole) == sorted([0, 1, 2, 3] * 6)
    assert iterated(make.dataset(), "plain") == whole[make.READ :]
    assert iterated(make.dataset().small_checkpoints(), "small") == whole[make.READ :]


def test_a_checkpoint_of_a_mixture_is_resumed() -> None:
    assert iterated(make.mixture(), "mixture") == [int(value) for value in make.mixture()][make.READ :]


def test_a_training_is_resumed(tmp_path: Path) -> None:
    """A training continues after the second batch of its second epoch with the batches of an uninterrupted one."""
    batches = make.batches()
    epochs = [[label.numpy().tolist() for _, label in batches] for _ in range(3)]
    got: list[list[int]] = []
    train = make.batches().map(
        lambda x, y: (x, tf.py_function(lambda v: got.append(v.numpy().tolist()) or v, [y], y.dtype))
    )
    train = train.map(lambda x, y: (x, tf.ensure_shape(y, (None,))))
    model = make.model()
    model.fit(
        train, epochs=3, callbacks=[t2t.Resume(train, str(copied("sealed/resume", tmp_path)), every=1)], verbose=0
    )
    assert got == [*epochs[1][2:], *epochs[2]]


def test_documents_with_checksums_are_read(tmp_path: Path) -> None:
    written = t2t.load(copied("sealed/export", tmp_path))
    written.verify()
    assert sorted(int(record["x"]) for record in written) == sorted([0, 1, 2, 3] * 3)
    new = tree(fresh(tmp_path, shard_records=5, idx=True, types={"x": "int64"}))
    old = tree(tmp_path / "sealed/export")
    assert {name: old[name] for name in old if "tfrecord" in name} == {
        name: new[name] for name in new if "tfrecord" in name
    }
    with t2t.open(URL, index=False) as source:
        keys = [record["__key__"] for record in source.records()]
    for name in ("index.t2t", "wids.json"):
        with t2t.open(URL, index=GOLDEN / "sealed" / name) as source:
            assert [source[number]["__key__"] for number in range(12)] == keys


def test_a_cache_folder_is_used(tmp_path: Path) -> None:
    with t2t.open(URL, index=False, cache=copied("sealed/cache", tmp_path)) as source:
        assert len(list(source.records())) == 12
        assert source.stats.cached == source.stats.bytes > 0
