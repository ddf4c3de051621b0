"""A shard that `on_error` skips still gives every record that was complete before the damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import ArchiveError, LimitExceeded
from tests.support import archives

RECORDS = 40
_chance = random.Random(9)
MEMBERS = [
    (f"{record:04d}.{field}", _chance.randbytes(1 + _chance.randrange(900)))
    for record in range(RECORDS)
    for field in ("jpg", "cls")
]
ARCHIVES = archives.in_every_format(MEMBERS)
BY_DIRECTORY = ("piped.zip", "stored.piped.zip")  # with garbage at the end, no directory is found
KEYS = [name.partition(".")[0] for name, _ in MEMBERS[::2]]
GARBAGE = b"garbage " * 200


def skipping(path: Path, **options: Any) -> tuple[list[str], dict[str, int]]:
    """Return the keys of a shard's records, and what was skipped."""
    source = t2t.open(path, on_error="skip-shard", **options)
    found = [record["__key__"] for record in source.records()]
    assert source.stats.records_read == len(found) + sum(source.stats.skipped.values())
    return found, dict(source.stats.skipped)


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name not in BY_DIRECTORY])
def test_garbage_after_the_end_loses_no_record(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{name}"
    path.write_bytes(ARCHIVES[name] + GARBAGE)
    found, skipped = skipping(path)
    assert found == KEYS
    assert list(skipped.values()) == [1]
    with pytest.raises(ArchiveError):
        list(t2t.open(path).records())


@pytest.mark.parametrize("shuffle", [None, 7, True])
def test_garbage_loses_no_record_of_a_dataset(shuffle: Any, tmp_path: Path) -> None:
    for number in range(2):
        members = [(f"{number}-{name}", body) for name, body in MEMBERS]
        (tmp_path / f"s-{number}.tar").write_bytes(archives.tar_of(members) + GARBAGE)
    source = t2t.open(tmp_path, on_error="skip-shard")
    found = [each["__key__"].decode() for each in source.dataset(shuffle=shuffle).as_numpy_iterator()]
    assert sorted(found) == [f"{number}-{key}" for number in range(2) for key in KEYS]
    assert source.stats.skipped == {"ArchiveError": 2}


def test_a_tar_that_was_joined_by_cat_gives_all_of_its_first_part(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(ARCHIVES["tar"] * 2)
    assert skipping(tmp_path / "s.tar") == (KEYS, {"ArchiveError": 1})


def test_a_record_that_may_be_incomplete_is_not_given(tmp_path: Path) -> None:
    """A tar is cut between two members, so the last record may have had more files."""
    whole = archives.read(ARCHIVES["tar"])
    for cut, complete in ((whole[-1].offset, RECORDS - 1), (whole[2].offset, 0), (whole[4].offset, 1)):
        (tmp_path / "s.tar").write_bytes(ARCHIVES["tar"][:cut])
        assert skipping(tmp_path / "s.tar") == (KEYS[:complete], {"TruncatedArchive": 1})


def test_a_record_that_is_too_large_is_not_given(tmp_path: Path) -> None:
    """The record is refused before the end mark, which arrives in the same block."""
    members = [("a.jpg", b"1"), ("a.cls", b"2"), ("x.jpg", b"1" * 600), ("x.cls", b"2" * 600)]
    (tmp_path / "s.tar").write_bytes(archives.tar_of(members) + GARBAGE)
    limits = t2t.options.Limits(record_bytes=1_100)
    source = t2t.open(tmp_path / "s.tar", limits=limits, on_error=lambda error: isinstance(error, LimitExceeded))
    assert [record["__key__"] for record in source.records()] == ["a"]
    assert source.stats.skipped == {"LimitExceeded": 1}


def test_every_whole_record_of_a_record_file_is_given(tmp_path: Path) -> None:
    """Each record of a TFRecord file is complete by itself, wherever the file is damaged after it."""
    path, offsets = tmp_path / "s.tfrecord", [0]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(RECORDS):
            feature = {"n": t2t.features.int64_feature(number)}
            payload = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
            writer.write(payload)
            offsets.append(offsets[-1] + len(payload) + 16)
    data = path.read_bytes()
    assert len(data) == offsets[-1]
    for damaged, whole in ((data + GARBAGE, RECORDS), (data[:-1], RECORDS - 1), (data[: offsets[7] + 3], 7)):
        path.write_bytes(damaged)
        assert len(skipping(path)[0]) == whole
    path.write_bytes(data[: offsets[5] + 13] + b"\xff" + data[offsets[5] + 14 :])
    assert len(skipping(path)[0]) == 5


@pytest.mark.parametrize("name", ["zip", "stored.zip"])
def test_every_whole_record_of_a_zip_is_given(name: str, tmp_path: Path) -> None:
    """Records that arrive in the same block as the damage are given, too."""
    data = ARCHIVES[name]
    begin = data.index(b"0020.jpg")
    (tmp_path / "s.zip").write_bytes(data[:begin] + b"\0" * 40 + data[begin + 40 :])
    found, skipped = skipping(tmp_path / "s.zip")
    assert found == KEYS[:19]  # the last record may have had more files
    assert sum(skipped.values()) == 1
