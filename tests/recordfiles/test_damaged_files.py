"""For damaged record files, every reader names the file and the offset. TensorFlow names at most the offset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import ArchiveError, ObjectChanged, ShardNotFound, TruncatedArchive
from tests.support.own_errors import raises_ours
from tests.support.record_folders import source

COUNTS = [40, 25]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Write four files of at most 20 records."""
    folder = tmp_path_factory.mktemp("whole")
    t2t.open(source(folder / "in", COUNTS)).export(folder / "out", shard_records=20, workers=1)
    return folder / "out"


@pytest.fixture
def written(whole, tmp_path) -> Path:
    """Copy the files, so that a test can damage them."""
    return Path(shutil.copytree(whole, tmp_path / "out"))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tfrecord*"))


def offsets(path: Path) -> list[int]:
    """Return the offsets of the records, found by TensorFlow's reader."""
    found = [0]
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        found.append(found[-1] + len(record) + 16)
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


READ = {
    "dataset": lambda loaded: list(loaded.dataset("train")),
    "numpy": lambda loaded: list(loaded.dataset("train").as_numpy_iterator()),
    "batches": lambda loaded: list(loaded.dataset("train", batch=4)),
    "shuffled": lambda loaded: list(loaded.dataset("train", shuffle=True, seed=1)),
    "interleaved": lambda loaded: list(loaded.dataset("train", interleave=2)),
    "a part": lambda loaded: list(loaded.dataset("train[:90%]")),
    "behind": lambda loaded: list(loaded.dataset("train").map(lambda record: record["cls"]).batch(2).prefetch(1)),
    "records": lambda loaded: list(loaded.records("train")),
}


@pytest.mark.parametrize(
    ("read", "within"),  # a byte of the length, its checksum, the payload, its checksum
    [*((read, 14) for read in READ.values()), *((READ["dataset"], within) for within in (2, 9, 60, -2))],
)
def test_a_flipped_byte(written, read, within):
    begins = offsets(files(written)[2])
    begin, end = begins[7:9]
    flip(files(written)[2], end + within if within < 0 else begin + within)
    with raises_ours(ArchiveError, f"{files(written)[2]}, offset {begin}: the checksum"):
        read(t2t.load(written))


@pytest.mark.parametrize(
    ("read", "left"), [*((read, 5) for read in READ.values()), (READ["batches"], 13), (READ["dataset"], 30)]
)
def test_a_file_that_is_cut_in_a_record(written, read, left):
    """TensorFlow's reader silently accepts five bytes of a header as the end of the file."""
    begin = offsets(files(written)[1])[11]
    files(written)[1].write_bytes(files(written)[1].read_bytes()[: begin + left])
    cut = files(written)[1]
    with raises_ours(
        (TruncatedArchive, ObjectChanged), f"{cut}(, offset|: the file has {cut.stat().st_size:,} bytes)"
    ):
        read(t2t.load(written))


@pytest.mark.parametrize("read", ["dataset", "batches", "behind"])
def test_a_file_that_is_cut_between_records(written, read):
    begin = offsets(files(written)[1])[11]
    files(written)[1].write_bytes(files(written)[1].read_bytes()[:begin])
    with raises_ours(
        (ArchiveError, ObjectChanged),
        f"{files(written)[1]}(, offset {begin}: the file has 11 records.* says 20|: the file has {begin:,} bytes)",
    ):
        READ[read](t2t.load(written))


@pytest.mark.parametrize("read", ["dataset", "shuffled", "behind", "records"])
def test_a_missing_file(written, read):
    loaded = t2t.load(written)
    gone = files(written)[1]
    gone.unlink()
    with raises_ours(ShardNotFound, f"{gone}: there is no such file"):
        READ[read](loaded)


def test_two_datasets_with_the_same_offsets_are_told_apart(whole, written):
    """The error names the damaged file, not a file of a dataset that was created later."""
    made = [written, whole]
    begin = offsets(files(made[0])[2])[7]
    flip(files(made[0])[2], begin + 14)
    first, second = (t2t.load(folder).dataset("train").batch(3) for folder in made)
    assert len(list(second)) == 22
    with raises_ours(ArchiveError, f"{files(made[0])[2]}, offset {begin}"):
        list(first)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-70])


@pytest.mark.parametrize("harm", [Path.unlink, cut])
@pytest.mark.parametrize("kind", ["array_record", "tar"])
def test_other_kinds_of_files(tmp_path, kind, harm):
    t2t.open(source(tmp_path / "in", COUNTS)).export(tmp_path / "out", format=kind, shard_records=20, workers=1)
    (_, damaged, *_) = sorted(tmp_path.glob("out/dataset-*"))
    harm(damaged)
    with pytest.raises(t2t.errors.Tar2TFError, match=damaged.name):
        list(t2t.load(tmp_path / "out").dataset("train"))
    with pytest.raises(tf.errors.OpError) as caught:
        list(t2t.load(tmp_path / "out").dataset("train").prefetch(1))
    assert damaged.name in str(t2t.errors.original(caught.value))
    with pytest.raises(t2t.errors.Tar2TFError, match=damaged.name):
        list(t2t.load(tmp_path / "out").records("train"))


def test_a_dataset_behaves_like_tensorflows_own(written, tmp_path):
    dataset = t2t.load(written).dataset("train")
    assert dataset.cardinality().numpy() == sum(COUNTS) == len(dataset)
    iterator = iter(dataset)
    keys = [next(iterator)["__key__"].numpy() for _ in range(3)]
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    rest = [element["__key__"].numpy() for element in iterator]
    fresh = iter(dataset)
    tf.train.Checkpoint(iterator=fresh).restore(saved)
    assert [element["__key__"].numpy() for element in fresh] == rest
    assert [*keys, *rest] == [record["__key__"].encode() for record in t2t.load(written).records("train")]
