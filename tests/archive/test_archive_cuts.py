"""Archives of 64 records in every format are cut at every byte. Every cut is detected, and its place reported."""

from __future__ import annotations

import random
import tarfile

import pytest
import tensorflow as tf

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.errors import TruncatedArchive
from ais_tar2tf.options import Limits
from tests.support import archives

BLOCK = 512
_chance = random.Random(64)
MEMBERS = [
    (f"{record:04d}.{field}", _chance.randbytes(1 + _chance.randrange(30)))
    for record in range(64)
    for field in ("jpg", "cls")
]
ARCHIVES = archives.in_every_format(MEMBERS)


def test_all_archives_are_complete() -> None:
    for name, data in ARCHIVES.items():
        assert [(found.name, found.body) for found in archives.read(data)] == MEMBERS, name


STREAMED = ("tar", "zip", "stored.zip")  # for these, reading a longer part takes only the time of one more byte


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name not in STREAMED])
def test_every_cut_is_detected(name: str) -> None:
    """Every cut is detected after correct members. A zip that is read by its directory gives no members."""
    data = ARCHIVES[name]
    for cut in range(len(data)):
        part, found = data[:cut], list[archives.Found]()
        with pytest.raises(TruncatedArchive) as caught:
            found.extend(archives.drain(ShardArchive(archives.SHARD, Limits()), part, [part], Limits()))
        assert caught.value.shard == archives.SHARD
        assert 0 <= caught.value.offset <= len(ARCHIVES["tar"])
        assert [(each.name, each.body) for each in found] == MEMBERS[: len(found)]


@pytest.mark.parametrize("name", ["zip", "stored.zip"])
def test_every_cut_of_a_zip_is_detected(name: str) -> None:
    """Call `finish` after each byte. This is possible because `finish` changes nothing."""
    data = ARCHIVES[name]
    archive, found = ShardArchive(archives.SHARD, Limits()), list[tuple[str, bytes]]()
    for cut in range(len(data)):
        with pytest.raises(TruncatedArchive) as caught:
            archive.finish()
        assert caught.value.shard == archives.SHARD
        assert 0 <= caught.value.offset <= cut
        for told in archive.feed(data[cut : cut + 1]):
            found += zip(told.names, [bytes(told.data)], strict=True)
        assert found == MEMBERS[: len(found)]
    archive.finish()
    assert found == MEMBERS


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_cut_of_a_tar_is_detected(tar_format: int) -> None:
    """Call `finish` after each byte. This is possible because `finish` changes nothing.

    The end mark of a tar is a block of zeros, followed by more zeros. A cut
    that removes only whole blocks of the latter loses nothing.
    """
    data = archives.tar_of(MEMBERS, tar_format)
    end = len(data.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK
    archive, count = ShardArchive(archives.SHARD, Limits()), 0
    for cut in range(len(data)):
        if cut > end and cut % BLOCK == 0:
            archive.finish()
            assert count == len(MEMBERS)
        else:
            with pytest.raises(TruncatedArchive) as caught:
                archive.finish()
            assert caught.value.shard == archives.SHARD
            assert 0 <= caught.value.offset <= cut
        count += sum(len(members.names) for members in archive.feed(data[cut : cut + 1]))
    archive.finish()


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_every_cut_of_a_tfrecord_file(compression: str, tmp_path: object) -> None:
    """A TFRecord file has no end mark, so a cut between two records is detected only if the file is compressed."""
    path = f"{tmp_path}/x.tfrecord"
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for _, body in MEMBERS[:64]:
            writer.write(body)
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read()
    whole = archives.read(data)
    assert [found.body for found in whole] == [body for _, body in MEMBERS[:64]]
    between = set() if compression else {found.offset for found in whole} - {0}
    for cut in range(len(data)):
        if cut in between:
            assert archives.read(data[:cut]) == whole[: len(archives.read(data[:cut]))]
        else:
            with pytest.raises(TruncatedArchive) as caught:
                archives.read(data[:cut])
            assert 0 <= caught.value.offset <= whole[-1].offset + 100


def test_an_empty_object() -> None:
    with pytest.raises(TruncatedArchive, match="the shard has 0 bytes: too short for any archive") as caught:
        archives.read(b"", [])
    assert (caught.value.shard, caught.value.offset) == (archives.SHARD, 0)
