"""Read TFRecord files that TensorFlow wrote as archives, also from any position on."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.archive import ShardArchive, masked_crc
from ais_tar2tf.errors import (
    ArchiveError,
    DuplicateKey,
    LimitExceeded,
    MissingField,
    RecordError,
    SchemaError,
    TruncatedArchive,
)
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.formats.framing import frame_offsets, read_frames
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.values.features import decode
from ais_tar2tf.values.features import decoding as _decode
from tests.support import archives


def written(folder: Path, payloads: list[bytes], compression: str = "") -> bytes:
    path = folder / "x.tfrecord"
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for payload in payloads:
            writer.write(payload)
    return path.read_bytes()


def example(**features: object) -> bytes:
    made = {}
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], bytes):
            made[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif isinstance(values[0], float):
            made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def numbered(count: int, size: int = 50) -> list[bytes]:
    return [
        example(**{"image/encoded": bytes([at % 256]) * size, "label": at, "box": [0.5, at + 0.25]})
        for at in range(count)
    ]


def opened(name: str, data: bytes, **options: object) -> t2t.Source:
    store = MemoryStore("tfrecords")
    store.put(name, data)
    return t2t.open(store.url(name), **options)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    payloads=st.lists(st.one_of(st.binary(max_size=50), st.just(b"x" * 5000)), min_size=1, max_size=12),
    step=st.sampled_from([1, 3, 12, 16, 100, 10**6]),
    cuts=st.lists(st.integers(0, 2000), max_size=6),
)
def test_payloads_as_tensorflow_writes_them(
    payloads: list[bytes], step: int, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = written(tmp_path_factory.mktemp("tfr"), payloads)
    whole = archives.read(data)
    assert [found.body for found in whole] == payloads
    assert [found.name for found in whole] == [f"{at:09d}" for at in range(len(payloads))]
    assert archives.read(data, [data[at : at + step] for at in range(0, len(data), step)]) == whole
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    assert archives.read(data, [data[a:b] for a, b in pairwise(edges)]) == whole
    for at, found in enumerate(whole):
        archive = ShardArchive(archives.SHARD, Limits(), start=found.offset, number=at, compressed=False)
        assert list(archives.drain(archive, b"", [data[found.offset :]], Limits())) == whole[at:]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_what_tensorflow_parses(compression: str, tmp_path: Path) -> None:
    payloads = numbered(100)
    with opened("x.bin", written(tmp_path, payloads, compression)) as source:
        records = list(source.records())
    for at, (record, payload) in enumerate(zip(records, payloads, strict=True)):
        parsed = tf.train.Example.FromString(payload).features.feature
        assert record["__key__"] == f"{at:09d}"
        assert record["__shard__"] == "memory://tfrecords/x.bin"
        assert record["image/encoded"] == parsed["image/encoded"].bytes_list.value[0]
        np.testing.assert_array_equal(record["label"], parsed["label"].int64_list.value)
        np.testing.assert_array_equal(record["box"], parsed["box"].float_list.value)
    assert source.stats.records_read == source.stats.records_emitted == 100


def test_features_with_one_several_and_no_strings(tmp_path: Path) -> None:
    payload = example(one=b"1", two=[b"1", b"2"])
    empty = tf.train.Example(features=tf.train.Features(feature={"none": tf.train.Feature()})).SerializeToString()
    with opened("strings", written(tmp_path, [payload, empty])) as source:
        first, second = source.records()
    assert (first["one"], first["two"], second["none"]) == (b"1", [b"1", b"2"], [])


def test_a_record_may_contain_its_key(tmp_path: Path) -> None:
    with opened(
        "keys", written(tmp_path, [example(__key__=b"a/1", __shard__=b"no", x=b"1"), example(x=b"2")])
    ) as source:
        assert [(each["__key__"], each["__shard__"]) for each in source.records()] == [
            ("a/1", "memory://tfrecords/keys"),
            ("000000001", "memory://tfrecords/keys"),
        ]


def test_ignored_keys_and_shards_are_counted(tmp_path: Path) -> None:
    payloads = [example(__key__=b"a", __shard__=b"b", x=1), example(__key__=7, x=2), example(__key__=b"", x=3)]
    with opened("left-out", written(tmp_path, payloads)) as source:
        assert [record["__key__"] for record in source.records()] == ["a", "000000001", "000000002"]
    assert source.stats.ignored == 3


@pytest.mark.parametrize("second", [b"k", b"000000000"])
def test_a_repeated_key_is_treated_as_in_a_tar(second: bytes, tmp_path: Path) -> None:
    """A key may also repeat another record's number."""
    payloads = [example(x=0), example(__key__=b"k", x=1), example(x=2), example(__key__=second, x=3), example(x=4)]
    data = written(tmp_path, payloads)
    with opened("again", data, on_error="skip-record") as source:
        assert [int(record["x"][0]) for record in source.records()] == [0, 1, 2, 4]
    assert source.stats.skipped == {"DuplicateKey": 1}
    found: list[int] = []
    with opened("again", data) as source, pytest.raises(DuplicateKey, match="came before"):
        found.extend(int(record["x"][0]) for record in source.records())
    assert found == [0, 1, 2]


def test_records_before_a_bad_one_come_first(tmp_path: Path) -> None:
    found: list[int] = []
    data = written(tmp_path, [example(x=0), example(x=1), b"\xff" * 9, example(x=3)])
    with opened("bad", data) as source, pytest.raises(RecordError, match=r"no tf\.train\.Example"):
        found.extend(int(record["x"][0]) for record in source.records())
    assert found == [0, 1]


def test_remembered_names_of_features_are_bounded() -> None:
    before = sum(map(len, _decode._known))
    for number in range(200):
        name = f"{number:04d}" + "n" * 10_000
        assert decode(example(**{name: 1}))[name].tolist() == [1]
    assert sum(map(len, _decode._known)) <= before + 10_000


@pytest.mark.parametrize("length", [1 << 62, (1 << 31) + 5, (1 << 64) - 1])
def test_a_huge_length_is_refused_before_memory_is_allocated(length: int) -> None:
    head = struct.pack("<Q", length)
    data = head + struct.pack("<I", masked_crc(head)) + bytes(200)
    with opened("huge", data) as source, pytest.raises(LimitExceeded, match=r"Limits\.record_bytes"):
        list(source.records())
    for reading in (read_frames(io.BufferedReader(io.BytesIO(data)), "huge"), frame_offsets(data, file="huge")):
        with pytest.raises(LimitExceeded, match=r"Limits\.record_bytes"):
            list(reading)


def test_a_length_past_the_end_allocates_no_memory(tmp_path: Path) -> None:
    head = struct.pack("<Q", (1 << 31) - 100)
    path = tmp_path / "cut"
    path.write_bytes(head + struct.pack("<I", masked_crc(head)) + bytes(200))
    tracemalloc.start()
    try:
        with path.open("rb") as file, pytest.raises(TruncatedArchive):
            list(read_frames(file, "cut"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 << 20


def test_fields_are_selected(tmp_path: Path) -> None:
    data = written(tmp_path, [example(DBZ=b"1", label=3), example(label=4)])
    with opened("selected", data) as source:
        assert [set(each) for each in source.select("label").records()] == [{"__key__", "__shard__", "label"}] * 2
        assert [each.get("z") for each in source.select("z=DBZ?").records()] == [b"1", None]
        with pytest.raises(MissingField, match=r"000000001.*'dbz' is missing \(there are: label\); select 'dbz\?'"):
            list(source.select("DBZ").records())


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("shuffle", [None, 16])
def test_a_checkpoint_is_resumed_with_the_same_keys(compression: str, shuffle: int | None, tmp_path: Path) -> None:
    for shard in range(3):
        store = MemoryStore("tfrecord-resume")
        store.put(f"{shard}{compression}", written(tmp_path, numbered(120, 3000), compression))
    source = t2t.open(
        f"memory://tfrecord-resume/{{0..2}}{compression}", fields=["image/encoded"], limits=Limits(chunk_records=16)
    )
    first = source.dataset(shuffle=shuffle, seed=5 if shuffle else None).as_numpy_iterator()
    whole = [(record["__shard__"], record["__key__"]) for record in first]
    assert len(set(whole)) == 360
    iterator = iter(source.dataset(shuffle=shuffle, seed=5 if shuffle else None))
    for _ in range(133):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "checkpoint"))
    again = iter(source.dataset(shuffle=shuffle, seed=5 if shuffle else None))
    tf.train.Checkpoint(iterator=again).read(path)
    rest = [(record["__shard__"].numpy(), record["__key__"].numpy()) for record in again]
    assert rest == whole[133:]
    source.close()


def test_a_dataset_of_numbers_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    with opened("numbers", written(tmp_path, numbered(3))) as source:
        lengths = source.dataset(lambda record: tf.strings.length(record["image/encoded"]))
        assert list(lengths.as_numpy_iterator()) == [50] * 3
        told = r"record '0+': feature '(box|label)' holds numbers, and a dataset's fields are bytes.*by t2t\.load"
        with pytest.raises(SchemaError, match=told):
            list(source.dataset())
        with pytest.raises(SchemaError, match=told):  # for a mapping that can fail on data
            list(source.dataset(lambda record: tf.strings.to_number(record["label"])))
        with pytest.raises(SchemaError, match=told):
            list(source.dataset(decode={"label": "int64"}))


def test_every_byte_flipped(tmp_path: Path) -> None:
    """Checksums cover all bytes, so every change is detected."""
    data = written(tmp_path, numbered(3))
    whole = archives.read(data)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            found: list[archives.Found] = []
            with pytest.raises(ArchiveError):
                found.extend(archives.drain(ShardArchive(archives.SHARD, Limits()), b"", [bytes(damaged)], Limits()))
            assert found == whole[: len(found)]


def test_payloads_that_are_no_examples(tmp_path: Path) -> None:
    payloads = [example(x=b"1"), b"\x0a\xff\xff\xff", example(x=b"3")]
    data = written(tmp_path, payloads)
    with (
        opened("junk", data) as source,
        pytest.raises(RecordError, match="its payload is no") as caught,
    ):
        list(source.records())
    assert caught.value.key == "000000001"
    with opened("junk", data, on_error="skip-record") as source:
        assert [(each["__key__"], each["x"]) for each in source.records()] == [
            ("000000000", b"1"),
            ("000000002", b"3"),
        ]
        assert source.stats.skipped == {"RecordError": 1}
        assert source.stats.records_read == 3


def test_limits(tmp_path: Path) -> None:
    data = written(tmp_path, numbered(20))
    for limits, field in (
        (Limits(record_bytes=60), "record_bytes"),
        (Limits(keys=19), "keys"),
        (Limits(fields=2), "fields"),
    ):
        with opened("limits", data, limits=limits) as source, pytest.raises(LimitExceeded, match=rf"Limits\.{field}"):
            list(source.records())


def test_an_empty_file_is_no_archive(tmp_path: Path) -> None:
    """For no records, TensorFlow writes an empty file, which cannot be told apart from a lost object."""
    with opened("empty", written(tmp_path, [])) as source, pytest.raises(TruncatedArchive, match="0 bytes"):
        list(source.records())


def test_random_bytes_are_no_tfrecord_file() -> None:
    chance = random.Random(8)
    for _ in range(200):
        data = struct.pack("<Q", 10) + chance.randbytes(700)
        with pytest.raises(ArchiveError):
            archives.read(data)
