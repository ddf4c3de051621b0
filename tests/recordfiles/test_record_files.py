"""Source.export: boundaries, names, formats, splits and stores, read back by tarfile, webdataset, TFDS and grain."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.errors import (
    ArchiveError,
    ChecksumMismatch,
    ExportError,
    MappingError,
    ShardNotFound,
    TruncatedArchive,
)
from ais_tar2tf.recordfiles.export.boundaries import Bounds, FillLevel, parse_size
from ais_tar2tf.recordfiles.formats.tar_members import END, member
from ais_tar2tf.values.schema import Field, Schema
from tests.support import shards as made
from tests.support.record_folders import ROOT, examples, keys, source, tree
from tests.support.user_mapping import to_example

COUNTS = [70, 0, 13, 40, 1]
ALL_KEYS = [f"n{shard}/{number:06d}" for shard, count in enumerate(COUNTS) for number in range(count)]


@pytest.fixture(scope="module")
def mixed_size_template(tmp_path_factory) -> str:
    return source(tmp_path_factory.mktemp("source"), COUNTS)


# Boundaries, as a pure function


@given(st.lists(st.integers(0, 50)), st.integers(1, 100), st.integers(1, 9), st.integers(0, 3), st.data())
def test_boundaries_are_a_function_of_the_sizes(sizes, size, records, overhead, data):
    files, level = [[]], FillLevel(Bounds(size, records, overhead))
    begin = 0
    while begin < len(sizes):
        chunk = sizes[begin : begin + data.draw(st.integers(1, 20))]
        at = 0
        while at < len(chunk):
            count = level.fill(chunk, at)
            if count == 0:
                level.begin_next_file()
                files.append([])
            files[-1] += chunk[at : at + count]
            at += count
        begin += len(chunk)
    assert [each for file in files for each in file] == sizes
    for file in files:
        assert len(file) <= records
        assert sum(file) + overhead <= size or len(file) == 1 or not file
    for file, following in pairwise(files):
        assert len(file) == records or sum(file) + following[0] + overhead > size


def test_sizes_in_words():
    assert [parse_size(text) for text in ("100MB", "64 MiB", "1.5k", 12)] == [10**8, 2**26, 1500, 12]
    for wrong in ("", "12 apples", 0, True, "-1MB"):
        with pytest.raises(ValueError, match="size"):
            parse_size(wrong)


@pytest.mark.parametrize("wrong", [1.5, "10", 0, True, float("nan"), [3]])
def test_bounds_that_are_no_integers(mixed_size_template, tmp_path, wrong):
    """Invalid bounds are refused before anything is written, which would prevent the next run."""
    for bounds in ({"shard_records": wrong}, {"shard_size": wrong}):
        if bounds != {"shard_size": "10"}:
            with pytest.raises(
                (ValueError, TypeError), match=r"at least (1|one byte), not|is a whole number(, text)? or None, not"
            ):
                t2t.open(mixed_size_template).export(tmp_path / "out", **bounds)
    assert not (tmp_path / "out").exists()
    assert len(t2t.open(mixed_size_template).export(tmp_path / "out", shard_size=1e8, shard_records=1e2)) == 2


# Names and sizes


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> str:
    """Write 3,000 images in shards of several sizes."""
    folder = tmp_path_factory.mktemp("images")
    begin = 0
    for shard, count in enumerate((1_700, 3, 600, 697)):
        data = made.labelled(f"n{shard}", count, lambda i, b=begin: {"jpg": made.image((b + i) % 50), "cls": b"1"})
        (folder / f"train-{shard}.tar").write_bytes(data)
        begin += count
    return f"{folder}/train-{{0..3}}.tar"


def test_three_thousand_images_by_1024(images, tmp_path):
    for workers in (1, 2):
        files = t2t.open(images).export(tmp_path / str(workers), shard_records=1024, workers=workers)
        assert [len(examples([file])) for file in files] == [1024, 1024, 952]
    assert [Path(file).name for file in files] == [f"dataset-train.tfrecord-0000{i}-of-00003" for i in range(3)]
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
@pytest.mark.parametrize(
    "options", [{"shard_size": 9_000}, {"shard_records": 17}, {"shard_size": 1, "align": "shard"}]
)
def test_the_bytes_do_not_depend_on_folder_and_workers(mixed_size_template, tmp_path, kind, options):
    small = t2t.options.Writing(segment_bytes=3_000, waiting_bytes=1)
    t2t.open(mixed_size_template).export(tmp_path / "one", format=kind, workers=1, **options)
    t2t.open(mixed_size_template).export(tmp_path / "a" / "b", format=kind, workers=2, writing=small, **options)
    assert tree(tmp_path / "one") == tree(tmp_path / "a" / "b")


def test_files_are_bounded_and_no_file_is_empty(mixed_size_template, tmp_path):
    for kind in ("tfrecord", "tar"):
        files = t2t.open(mixed_size_template).export(tmp_path / kind, format=kind, shard_size="9KB", workers=1)
        assert all(0 < Path(file).stat().st_size <= 9_000 for file in files)
    assert keys(t2t.open(mixed_size_template).export(tmp_path / "tfrecord", shard_size="9KB", workers=1)) == ALL_KEYS


def test_align_shard_begins_a_file_with_each_shard(mixed_size_template, tmp_path):
    files = t2t.open(mixed_size_template).export(tmp_path / "out", align="shard", shard_records=50, workers=1)
    assert [len(keys([file])) for file in files] == [50, 20, 13, 40, 1]


def test_a_number_of_records_replaces_the_default_size(mixed_size_template, tmp_path):
    assert len(t2t.open(mixed_size_template).export(tmp_path / "a", shard_records=1000)) == 1
    assert len(t2t.open(mixed_size_template).export(tmp_path / "b", shard_records=1000, shard_size=20_000)) > 1


# Foreign readers


def test_tensorflow_reads_it(mixed_size_template, tmp_path):
    files = t2t.open(mixed_size_template).export(tmp_path / "out", shard_records=50)
    assert keys(files) == ALL_KEYS
    records = list(t2t.open(mixed_size_template).records())
    for example, record in zip(examples(files), records, strict=True):
        feature = example.features.feature
        assert set(feature) == {"__key__", "jpg", "cls"}
        assert feature["jpg"].bytes_list.value[0] == record["jpg"]


def test_tfds_reads_tfrecord(mixed_size_template, tmp_path):
    import tensorflow_datasets as tfds

    t2t.open(mixed_size_template).export(tmp_path / "out", shard_records=50)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    part = builder.as_dataset(split="train[:60%]")
    found = [element["__key__"].numpy().decode() for element in part]
    assert sorted(found) == sorted(ALL_KEYS[: round(len(ALL_KEYS) * 0.6)])
    assert builder.info.splits["train"].num_examples == len(ALL_KEYS)


def test_tfds_and_grain_read_array_record(mixed_size_template, tmp_path):
    import grain.python as grain
    import tensorflow_datasets as tfds

    t2t.open(mixed_size_template).export(tmp_path / "out", format="array_record", shard_records=50)
    data = tfds.builder_from_directory(str(tmp_path / "out")).as_data_source(split="train")
    assert len(data) == len(ALL_KEYS)
    assert data[80]["__key__"].decode() == ALL_KEYS[80]
    loaded = grain.MapDataset.source(data).map(lambda record: record["__key__"].decode())
    assert list(loaded) == ALL_KEYS


def test_tfds_reads_types_of_a_schema(tmp_path):
    import tensorflow_datasets as tfds

    rows = [{"__key__": f"{i:03d}", "png": made.image(i, "PNG"), "label": str(i)} for i in range(5)]
    t2t.pack(rows, f"{tmp_path}/in-{{}}.tar")
    schema = Schema((Field("png", "uint8", (30, 40, 3), "image", format="png"), Field("label", "bytes")))
    t2t.open(f"{tmp_path}/in-0.tar").export(tmp_path / "out", schema=schema)
    elements = list(tfds.builder_from_directory(str(tmp_path / "out")).as_dataset(split="train"))
    assert elements[2]["png"].shape == (30, 40, 3)
    assert (elements[2]["png"].numpy() == tf.io.decode_png(made.image(2, "PNG")).numpy()).all()
    assert t2t.load(tmp_path / "out").schema["png"].format == "png"


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # webdataset's
def test_tar_is_read_by_tarfile_and_webdataset(mixed_size_template, tmp_path):
    import webdataset

    files = t2t.open(mixed_size_template).export(tmp_path / "out", format="tar", shard_records=50)
    found = list(webdataset.WebDataset(files, shardshuffle=False))
    assert [sample["__key__"] for sample in found] == ALL_KEYS
    for sample, record in zip(found, t2t.open(mixed_size_template).records(), strict=True):
        assert (sample["jpg"], sample["cls"]) == (record["jpg"], record["cls"])
    with tarfile.open(files[0]) as archive:
        assert all(info.mtime == 0 and info.uid == 0 and info.mode == 0o644 for info in archive)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=130)


@given(st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=1_100))
def test_members_are_tarfiles(name, body):
    if any(part in ("", "..") for part in name.split("/")):
        if ".." in name.split("/"):
            with pytest.raises(ExportError, match="leaves its folder"):
                member(name, body)
        return
    with tarfile.open(fileobj=io.BytesIO(b"".join((*member(name, body), END)))) as archive:
        (info,) = archive.getmembers()
        assert info.name.rstrip("/") == name.rstrip("/")
        if info.isfile():
            assert archive.extractfile(info).read() == body


def test_dali_index_only_when_asked(mixed_size_template, tmp_path):
    (file,) = t2t.open(mixed_size_template).export(tmp_path / "out", idx=True)
    lines = Path(f"{file}.idx").read_text().splitlines()
    assert len(lines) == len(ALL_KEYS)
    begin, size = map(int, lines[7].split())
    Path(tmp_path / "one").write_bytes(Path(file).read_bytes()[begin : begin + size])
    assert keys([str(tmp_path / "one")]) == ALL_KEYS[7:8]
    t2t.open(mixed_size_template).export(tmp_path / "other")
    assert not list((tmp_path / "other").glob("*.idx"))


# Content


def test_a_function_of_a_module_goes_to_workers(mixed_size_template, tmp_path):
    for workers in (1, 2):
        t2t.open(mixed_size_template).export(tmp_path / str(workers), record_to_example=to_example, workers=workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert t2t.load(tmp_path / "2")[3] == {"n": 3, "size": 303, "key": b"n0/000003"}


def test_workers_end_if_another_one_cannot_be_started(mixed_size_template, tmp_path, monkeypatch):
    started, popen = [], subprocess.Popen

    def second_fails(*arguments, **options):
        if started:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ExportError, match="Resource temporarily unavailable"):
        t2t.open(mixed_size_template).export(tmp_path / "out", workers=2)
    assert started[0].poll() is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_mapping_that_workers_cannot_get_is_an_error(mixed_size_template, tmp_path):
    with pytest.raises(ExportError, match="workers=1"):
        t2t.open(mixed_size_template).export(tmp_path / "out", workers=2, record_to_example=lambda _: {"a": 1})
    assert t2t.open(mixed_size_template).export(tmp_path / "out", record_to_example=lambda _: {"a": 1})


def test_failures_stop_or_are_counted(mixed_size_template, tmp_path):
    def picky(record):
        if record["__key__"] == "n0/000005":
            raise ValueError("not this one")
        return {"key": record["__key__"]}

    with pytest.raises(MappingError, match=r"n0/000005.*not this one"):
        t2t.open(mixed_size_template).export(tmp_path / "out", record_to_example=picky)
    assert not list(tmp_path.glob("out/dataset*"))
    skipping = t2t.open(mixed_size_template, on_error="skip-record")
    skipping.export(tmp_path / "skipped", record_to_example=picky)
    entry = t2t.load(tmp_path / "skipped").manifest.splits["train"]
    assert (entry.records, entry.skipped) == (len(ALL_KEYS) - 1, {"MappingError": 1})
    assert skipping.stats.skipped == {"MappingError": 1}


def test_errors_of_workers_are_ours(mixed_size_template, tmp_path):
    broken = source(tmp_path / "in", [20, 20])
    path = tmp_path / "in" / "s-1.tar"
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(TruncatedArchive, match=r"s-1\.tar, offset"):
        t2t.open(broken).export(tmp_path / "out", workers=2)
    path.unlink()
    with pytest.raises(ShardNotFound, match=r"s-1\.tar"):
        t2t.open(broken).export(tmp_path / "out2", workers=2)


def test_the_manifest_names_the_sources(imagenet, tmp_path):
    ais = t2t.AisDataset("imagenet", imagenet.url)
    ais.source("train-{0..2}.tar.gz").export(tmp_path / "one", workers=1)
    ais.source("train-{0..2}.tar.gz").export(tmp_path / "two", workers=2)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    sources = manifest["splits"]["train"]["sources"]
    assert [each["url"] for each in sources] == [f"ais://imagenet/train-{i}.tar.gz" for i in range(3)]
    assert all(each["version"] and each["checksum"].startswith("xxhash") for each in sources)
    assert manifest["splits"]["train"]["records"] == 48


# Splits


def test_splits_by_ratio(mixed_size_template, tmp_path):
    ratios = {"train": 0.7, "val": 0.2, "test": 0.1}
    for workers in (1, 2):
        t2t.open(mixed_size_template).export(
            tmp_path / str(workers), splits=ratios, seed=7, shard_records=20, workers=workers
        )
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    loaded = t2t.load(tmp_path / "1")
    found = {split: keys(loaded.files(split)) for split in ratios}
    assert sorted(key for each in found.values() for key in each) == sorted(ALL_KEYS)
    assert 60 < len(found["train"]) < 110
    t2t.open(mixed_size_template).export(tmp_path / "other", splits=ratios, seed=8)
    assert keys(t2t.load(tmp_path / "other").files("train")) != found["train"]


def test_splits_by_predicate_and_by_list(mixed_size_template, tmp_path):
    even = {"even": lambda r: int(r["cls"]) % 2 == 0, "five": lambda r: r["cls"] == b"5"}
    t2t.open(mixed_size_template).export(tmp_path / "a", splits=even)
    loaded = t2t.load(tmp_path / "a")
    assert loaded.splits == {"even": 63, "five": 12}
    assert loaded.manifest.splits["even"].skipped == {"NoSplit": len(ALL_KEYS) - 75}
    t2t.open(mixed_size_template).export(tmp_path / "b", splits={"x": ALL_KEYS[:3], "y": ALL_KEYS[100:]})
    assert keys(t2t.load(tmp_path / "b").files("y")) == ALL_KEYS[100:]


@pytest.mark.parametrize(
    "splits",
    [
        {"a": 0.5, "b": 0.4},
        {"a": 0.5, "b": float("nan")},
        {"a": float("nan")},
        {"a": ["k"], "b": ["k"]},
        {"a": 1.0, "b": ["k"]},
        {"a/b": 1},
    ],
)
def test_invalid_splits(mixed_size_template, tmp_path, splits):
    with pytest.raises(ValueError, match=r"split|ratios|listed"):
        t2t.open(mixed_size_template).export(tmp_path / "out", splits=splits)


# Stores


def test_into_a_bucket_and_back(mixed_size_template, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "root" / "b").mkdir(parents=True)
    with t2t.serve(tmp_path / "root") as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        files = t2t.open(mixed_size_template).export("ais://b/data/set", shard_records=50, idx=True)
        assert files[0] == "ais://b/data/set/dataset-train.tfrecord-00000-of-00003"
        t2t.open(mixed_size_template).export(tmp_path / "local", shard_records=50, idx=True)
        assert tree(tmp_path / "local") == tree(tmp_path / "root" / "b" / "data" / "set")
        assert t2t.open(mixed_size_template).export("ais://b/data/set", shard_records=50, idx=True) == files
        loaded = t2t.load("ais://b/data/set")
        assert [loaded[at]["__key__"] for at in (0, 60, -1)] == [ALL_KEYS[at] for at in (0, 60, -1)]
        assert [e["__key__"].decode() for e in loaded.dataset("train").as_numpy_iterator()] == ALL_KEYS
        assert loaded.verify().records == len(ALL_KEYS)
        t2t.open(mixed_size_template).export("ais://b/data/set", exists="replace", idx=True)
        assert len(list((tmp_path / "root" / "b" / "data" / "set").glob("dataset-train*"))) == 2
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_memory_and_array_record(mixed_size_template, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    t2t.open(mixed_size_template).export("memory://exported/out", format="array_record", shard_records=50)
    loaded = t2t.load("memory://exported/out")
    assert [record["__key__"] for record in loaded[48:52]] == ALL_KEYS[48:52]
    assert loaded.verify().files == 3


# Verify


@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
def test_verify_finds_the_first_fault(mixed_size_template, tmp_path, kind):
    files = t2t.open(mixed_size_template).export(tmp_path / "out", format=kind, shard_records=50)
    loaded = t2t.load(tmp_path / "out")
    assert loaded.verify().records == len(ALL_KEYS)
    path = Path(files[1])
    good = path.read_bytes()
    for at in (5, len(good) // 2, len(good) - 2):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((ArchiveError, ChecksumMismatch), match="00001-of-00003"):
            loaded.verify()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(ArchiveError, match="00001-of-00003"):
        loaded.verify()
    path.unlink()
    with pytest.raises(ShardNotFound, match="00001-of-00003"):
        loaded.verify()


def test_verify_names_the_offset(mixed_size_template, tmp_path):
    (file,) = t2t.open(mixed_size_template).export(tmp_path / "out", idx=True)
    begin, size = map(int, Path(f"{file}.idx").read_text().splitlines()[9].split())
    data = bytearray(Path(file).read_bytes())
    data[begin + size - 20] ^= 4
    Path(file).write_bytes(data)
    with pytest.raises(ArchiveError) as found:
        t2t.load(tmp_path / "out").verify()
    assert (found.value.offset, found.value.shard) == (begin, file)


@pytest.mark.parametrize("at", [100, 65_541, None])
def test_verify_locates_damage_of_an_array_record(tmp_path, at):
    """Damage is located in blocks of 64 KiB, or in chunks of records."""
    template = source(tmp_path / "in", [300])
    (file,) = t2t.open(template).export(tmp_path / "out", format="array_record", shard_records=300)
    data = bytearray(Path(file).read_bytes())
    at = data.rindex(b"n0/000200") if at is None else at
    data[at] ^= 4
    Path(file).write_bytes(data)
    with pytest.raises(ArchiveError) as found:
        t2t.load(tmp_path / "out").verify()
    assert found.value.shard == file
    assert at - 2_000 < found.value.offset <= at


def test_exporting_loads_no_tensorflow(mixed_size_template, tmp_path):
    code = (
        "import sys, ais_tar2tf as t2t; t2t.open(sys.argv[1]).export(sys.argv[2])\n"
        "loaded = t2t.load(sys.argv[2]); loaded[3]; loaded.verify(); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, mixed_size_template, str(tmp_path / "out")],
        check=True, capture_output=True, text=True, cwd=ROOT, timeout=200,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("False", "")  # progress is silent without a terminal


def test_no_file_contains_its_folder(mixed_size_template, tmp_path):
    t2t.open(mixed_size_template).export(tmp_path / "somewhere")
    for path in (tmp_path / "somewhere").iterdir():
        assert b"somewhere" not in path.read_bytes()
        assert os.fspath(tmp_path).encode() + b"/some" not in path.read_bytes()
