"""An export writes large fields from the blocks in which they arrived, with the same bytes as in pure Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.records import Cuts
from tests.support import shards as made
from tests.support.tar_members import needs_native

pytestmark = needs_native

Content = dict[str, dict[str, bytes]]


def shards_of(*sizes: tuple[int, int]) -> list[Content]:
    """Return the records of shards, each with records whose fields have between two sizes."""
    found: list[Content] = []
    for shard, (least, most) in enumerate(sizes):
        chance = random.Random(shard)
        content = {
            f"{shard}/{n:04d}{'é' * (shard == 3)}": {
                "jpg": chance.randbytes(chance.randint(least, most)),
                "cls": b"%d" % n,
            }
            for n in range(6_000_000 // most)
        }
        found.append(content)
    return found


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> set[type]:
    """Return a set that gets the types of the values that columns in blocks hand out."""
    found: set[type] = set()
    take = Cuts.pieces

    def noting(column: Cuts) -> list[object]:
        taken = take(column)
        found.update(map(type, taken))
        return taken

    monkeypatch.setattr(Cuts, "pieces", noting)
    return found


@pytest.fixture
def serve_shards(tmp_path: Path) -> Iterator[Callable[[list[Content]], list[str]]]:
    """Return a function that serves shards and returns their URLs."""
    folder = tmp_path / "root" / "b"
    folder.mkdir(parents=True)
    with t2t.serve(tmp_path / "root") as server:

        def put(shards: list[Content]) -> list[str]:
            for number, content in enumerate(shards):
                (folder / f"{number}.tar").write_bytes(made.tar(content.items()))
            return [f"{server.url}/v1/objects/b/{number}.tar" for number in range(len(shards))]

        yield put


def examples_in(folder: Path, pattern: str) -> dict[str, dict[str, bytes]]:
    """Read an export with TensorFlow."""
    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in ("__key__", "jpg", "cls")}
    found: Content = {}
    for raw in tf.data.TFRecordDataset(sorted(map(str, folder.glob(pattern)))):
        example = {name: value.numpy() for name, value in tf.io.parse_single_example(raw, spec).items()}
        found[example.pop("__key__").decode()] = example
    return found


@pytest.mark.parametrize("splits", [None, {"train": 0.7, "test": 0.3}])
def test_an_export_has_the_same_bytes_with_both_engines(
    serve_shards: Callable[[list[Content]], list[str]],
    pieces: set[type],
    tmp_path: Path,
    use: Callable[[str], None],
    splits: dict[str, float] | None,
) -> None:
    shards = shards_of((20_000, 100_000), (10, 4_000), (16_000, 17_000), (90_000, 100_000))
    urls = serve_shards(shards)
    chosen = {"splits": splits} if splits else {}
    for name in ("native", "python"):
        pieces.clear()
        use(name)
        with t2t.open(urls) as source:
            source.export(tmp_path / name, format="tfrecord", name="x", shard_size="2MB", workers=1, **chosen)
        assert (np.ndarray in pieces) == (bytes in pieces) == (name == "native")
    files = {path.name: path for path in (tmp_path / "python").glob("x-*")}
    assert len(files) > 6
    for name, path in files.items():
        assert (tmp_path / "native" / name).read_bytes() == path.read_bytes(), name
    expected = {key: fields for content in shards for key, fields in content.items()}
    assert examples_in(tmp_path / "native", "x-*.tfrecord-*-of-*[0-9]") == expected


def test_records_that_differ_are_exported_alike(
    serve_shards: Callable[[list[Content]], list[str]], tmp_path: Path, use: Callable[[str], None]
) -> None:
    (content,) = shards_of((20_000, 40_000))
    for number, fields in enumerate(content.values()):
        if number % 7 == 0:
            fields["txt"] = b"t" * number
    urls = serve_shards([content])
    for name in ("native", "python"):
        use(name)
        with t2t.open(urls) as source:
            source.export(tmp_path / name, format="tfrecord", name="x")
    (native,), (python,) = ([*(tmp_path / name).glob("x-*.tfrecord-*")] for name in ("native", "python"))
    assert native.read_bytes() == python.read_bytes()
