"""t2t.pack makes shards of folders, CSV files and records; and tests of `load_from_tar(path=…)` and of progress."""

from __future__ import annotations

import os
import re
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf
import webdataset

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring import progress
from ais_tar2tf.errors import ChecksumMismatch, DuplicateKey, ExportError, SchemaError, ShardNotFound
from ais_tar2tf.recordfiles.packing.plan import ShardNames
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made


def read(urls):
    return [{name: value for name, value in each.items() if name != "__shard__"} for each in t2t.iter_records(urls)]


def test_a_folder_of_classes(tmp_path):
    for label, name in enumerate(["cat", "dog"]):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "in" / name / f"{number}.jpg").write_bytes(made.image(label * 3 + number))
    urls = t2t.pack(tmp_path / "in", f"{tmp_path}/out/train-{{}}.tar", shard_records=4, shuffle=False)
    assert [Path(url).name for url in urls] == ["train-0.tar", "train-1.tar"]
    assert [(r["__key__"], r["cls"]) for r in read(urls)] == [
        ("cat/0", b"0"), ("cat/1", b"0"), ("cat/2", b"0"), ("dog/0", b"1"), ("dog/1", b"1"), ("dog/2", b"1"),
    ]  # fmt: skip


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # webdataset's
def test_a_folder_of_records(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    for name, data in {
        "a/1.jpg": b"j",
        "a/1.cls": b"3",
        "a/2.seg.png": b"s",
        "top.txt": b"t",
        ".hidden": b"h",
    }.items():
        (tmp_path / "in" / name).write_bytes(data)
    (url,) = t2t.pack(tmp_path / "in", f"{tmp_path}/x.tar")
    assert read(url) == [
        {"__key__": "a/1", "cls": b"3", "jpg": b"j"},
        {"__key__": "a/2", "seg.png": b"s"},
        {"__key__": "top", "txt": b"t"},
    ]
    assert [sample["__key__"] for sample in webdataset.WebDataset(url, shardshuffle=False)] == ["a/1", "a/2", "top"]


def test_a_file_that_is_no_csv(tmp_path):
    for data in (b"txt\n\xe9\n", b'txt\n"a\nb\n'):
        (tmp_path / "list.csv").write_bytes(data)
        with pytest.raises(SchemaError, match=r"list\.csv, line \d: this is no CSV"):
            t2t.pack(tmp_path / "list.csv", f"{tmp_path}/x.tar")


def test_a_csv_with_an_empty_key(tmp_path):
    (tmp_path / "list.csv").write_text("__key__,text\nfirst,a\n,b\n")
    (url,) = t2t.pack(tmp_path / "list.csv", f"{tmp_path}/x.tar")
    records = [(record["__key__"], record["text"]) for record in t2t.open(url).records()]
    assert records == [("first", b"a"), ("00000001", b"b")]


def test_a_csv(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(3):
        (tmp_path / "images" / f"{number}.png").write_bytes(b"%d" % number)
    (tmp_path / "list.csv").write_text(
        "filename,label,Weight (kg)\n" + "".join(f"images/{i}.png,{i},1.5\n" for i in range(3))
    )
    (url,) = t2t.pack(tmp_path / "list.csv", f"{tmp_path}/x.tar")
    assert read(url)[2] == {"__key__": "images/2", "png": b"2", "cls": b"2", "weight_kg_": b"1.5"}
    (tmp_path / "list.csv").write_text("filename\nimages/none.png\n")
    with pytest.raises(ShardNotFound, match=r"none\.png"):
        t2t.pack(tmp_path / "list.csv", f"{tmp_path}/y.tar")


def test_following_shards_of_an_earlier_run_are_kept_unless_they_are_to_be_replaced(tmp_path):
    rows, template = [{"x": bytes([n])} for n in range(4)], f"{tmp_path}/{{}}.tar"
    urls = t2t.pack(rows, template, shard_records=1)
    Path(urls[0]).unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for count in (1, 2):
        with pytest.raises(ExportError, match=r"/1\.tar: there is a shard already; exists='replace'"):
            t2t.pack(rows[:count], template, shard_records=1)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    Path(urls[1]).unlink()
    with pytest.raises(ExportError, match=r"/2\.tar: there is a shard already"):
        t2t.pack(rows[:2], template, shard_records=1)
    assert {path.name for path in tmp_path.iterdir()} == {"0.tar", "2.tar", "3.tar"}
    t2t.pack(rows[:2], template, shard_records=1, exists="replace")
    assert {path.name for path in tmp_path.iterdir()} == {"0.tar", "1.tar"}


@pytest.mark.parametrize("number", [0, 1])
def test_a_shard_that_appears_meanwhile_is_kept(tmp_path, number):
    """Another program writes it while the records of the first shard are collected."""

    def rows():
        yield {"x": b"0"}
        (tmp_path / f"{number}.tar").write_bytes(b"theirs")
        yield {"x": b"1"}

    with pytest.raises(ExportError, match="there is a shard already"):
        t2t.pack(rows(), f"{tmp_path}/{{}}.tar")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {f"{number}.tar": b"theirs"}


@pytest.mark.parametrize("template", ["{}.tar", "a,-{}/b-{:03d}.tar", "{}{:02d}/{}.tar"])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_all_shards_are_read_by_the_template_that_is_shown(tmp_path, template, count):
    """However often the number of a shard stands in its name."""
    rows = [{"__key__": f"k{number}", "x": b"x"} for number in range(count)]
    t2t.pack(rows, f"{tmp_path}/{template}", shard_records=1)
    shown = ShardNames(f"{tmp_path}/{template}").reading_template(count)
    assert [record["__key__"] for record in t2t.open(shown).records()] == [row["__key__"] for row in rows]


def test_rows_into_a_new_bucket(tmp_path, monkeypatch):
    rows = ({"__key__": f"k{i}", "txt": f"wört {i}", "n": i, "json": {"a": [i]}} for i in range(100))
    (tmp_path / "root").mkdir()
    with t2t.serve(tmp_path / "root") as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        urls = t2t.pack(rows, "ais://fresh/train-{:03d}.tar", shard_size="40KB", create=True)
        assert urls[:2] == ["ais://fresh/train-000.tar", "ais://fresh/train-001.tar"]
        assert all(path.stat().st_size <= 40_000 for path in (tmp_path / "root" / "fresh").iterdir())
        found = read(urls)
        assert len(found) == 100
        assert found[42] == {"__key__": "k42", "txt": "wört 42".encode(), "n": b"42", "json": b'{"a": [42]}'}
        with pytest.raises(ExportError, match="exists='replace'"):
            t2t.pack([{"x": b""}], "ais://fresh/train-{:03d}.tar")
        assert t2t.pack([{"x": b""}], "ais://fresh/train-{:03d}.tar", exists="replace") == urls[:1]
        assert len(list((tmp_path / "root" / "fresh").iterdir())) == 1


@pytest.mark.parametrize("row", [{"__key__": "a.b", "x": b""}, {"X": b""}, {"__key__": "a"}, {"x": object()}, 5])
def test_rows_that_could_not_be_read_back(row):
    with pytest.raises(SchemaError):
        t2t.pack([row], "memory://pack/never.tar")


def test_shards_that_cannot_be_read_back_are_an_error(monkeypatch):
    real = MemoryStore.put

    def evil(self, name, path):
        real(self, name, path.read_bytes().replace(b"good", b"evil"))

    monkeypatch.setattr(MemoryStore, "put", evil)
    with pytest.raises(ChecksumMismatch, match="read back"):
        t2t.pack([{"x": b"good"}], "memory://pack/evil.tar")
    with pytest.raises(ShardNotFound):
        read("memory://pack/evil.tar")


def test_a_repeated_key_leaves_no_shard(tmp_path):
    rows = [{"__key__": key, "x": b"1"} for key in ("a", "b", "a")]
    with pytest.raises(DuplicateKey, match="'a'"):
        t2t.pack(rows, f"{tmp_path}/twice-{{}}.tar")
    assert not list(tmp_path.iterdir())


def test_nothing_to_pack(tmp_path):
    with pytest.raises(ShardNotFound):
        t2t.pack(tmp_path / "none", "memory://pack/none.tar")
    with pytest.raises(ExportError, match="where a number goes"):
        t2t.pack([{"x": b"1"}, {"x": b"2"}], "memory://pack/one.tar", shard_records=1)


# load_from_tar(path=…)


def test_a_template_of_paths(imagenet_dataset, tmp_path):
    template = f"{tmp_path}/train-{{}}.record"
    for stale in (20, 30):
        Path(template.replace("{}", str(stale))).write_bytes(b"not ours: there is a gap before it")
    files = imagenet_dataset.load_from_tar("train-{0..1}.tar.gz", path=template, max_shard_size="10KB")
    assert files == [template.replace("{}", str(number)) for number in range(len(files))]
    assert all(Path(file).stat().st_size <= 10_000 for file in files)
    assert sum(1 for _ in tf.data.TFRecordDataset(files)) == 32
    fewer = imagenet_dataset.load_from_tar("train-0.tar.gz", path=template, max_shard_size="10KB")
    assert len(fewer) < len(files)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(
        [*fewer, *(template.replace("{}", n) for n in ("20", "30"))]
    )


def test_a_generator_of_paths(imagenet_dataset, tmp_path):
    def names():
        yield from (tmp_path / f"{letter}.record" for letter in "abcdefghijklmnop")

    files = imagenet_dataset.load_from_tar("train-0.tar.gz", path=names, max_shard_size=10_000)
    assert files == [os.fspath(path) for path, _ in zip(names(), files, strict=False)]
    assert sum(1 for _ in tf.data.TFRecordDataset(files)) == 16
    with pytest.raises(ExportError, match="end too early"):
        imagenet_dataset.load_from_tar(
            "train-0.tar.gz", path=lambda: iter([str(tmp_path / "z")]), max_shard_size=10_000
        )
    assert not (tmp_path / "z").exists()


@pytest.mark.parametrize("verb", ["load", "load_from_tar"])
def test_files_of_one_path_are_numbered_if_there_are_several(imagenet_dataset, tmp_path, verb):
    write, path = getattr(imagenet_dataset, verb), tmp_path / "train.record"
    for other in ("train.record-00000-of-2", "train.record.bak", "a-train.record-00000-of-00002"):
        (tmp_path / other).write_bytes(b"not ours")
    others = set(tmp_path.iterdir())
    (one,) = write("train-0.tar.gz", path=path, max_shard_size="1MB")
    assert one == str(path)
    records = [record.numpy() for record in tf.data.TFRecordDataset(one)]
    for size in ("10KB", "5KB", "10KB"):
        files = write("train-0.tar.gz", path=path, max_shard_size=size)
        assert files == [f"{path}-{number:05d}-of-{len(files):05d}" for number in range(len(files))]
        assert len(files) > 1
        assert all(Path(file).stat().st_size <= int(size[:-2]) * 1000 for file in files)
        assert [record.numpy() for record in tf.data.TFRecordDataset(files)] == records
        assert {*map(Path, files)} == {*tmp_path.iterdir()} - others, "files of the run before are gone"
    assert write("train-0.tar.gz", path=path) == [str(path)]
    assert {path} == {*tmp_path.iterdir()} - others


def test_a_template_of_paths_may_pad_its_numbers(imagenet_dataset, tmp_path):
    files = imagenet_dataset.load_from_tar("train-0.tar.gz", path=tmp_path / "x-{:03d}.record", max_shard_size="10KB")
    assert files == [f"{tmp_path}/x-{number:03d}.record" for number in range(len(files))]
    assert len(files) > 1


def test_a_folder_with_a_numbered_name_stops_before_any_change(imagenet_dataset, tmp_path):
    (before,) = imagenet_dataset.load_from_tar("train-0.tar.gz", path=tmp_path / "x")
    for total in range(2, 9):
        (tmp_path / f"x-00001-of-{total:05d}").mkdir()
    names, data = set(tmp_path.iterdir()), Path(before).read_bytes()
    with pytest.raises(ExportError, match="it is a folder"):
        imagenet_dataset.load_from_tar("train-0.tar.gz", path=tmp_path / "x", max_shard_size="10KB")
    assert set(tmp_path.iterdir()) == names
    assert Path(before).read_bytes() == data


def test_a_single_larger_record_has_its_own_file(imagenet_dataset, tmp_path):
    files = imagenet_dataset.load_from_tar("train-0.tar.gz", path=f"{tmp_path}/{{}}.record", max_shard_size=1)
    assert [sum(1 for _ in tf.data.TFRecordDataset(file)) for file in files] == [1] * 16


# Progress


class _Shown:
    def __init__(self):
        self.lines = []
        self.closed = False

    def show(self, text, shards):
        self.lines.append((text, shards))

    def close(self):
        self.closed = True


def test_progress_shows_rate_and_time():
    shown, now = _Shown(), [0.0]
    with progress.Progress("train", 4, lambda: shown, lambda: now[0], patience=0) as told:
        now[0] = 0.1
        told.add(10, 5_000_000)
        now[0] = 0.2  # too soon for an update
        told.add(0, 0)
        told.add_shard()
        now[0] = 1.0
        told.add(10, 5_000_000)
        now[0] = 2.0
    assert shown.lines == [
        ("train: 10 records, 50 MB/s", 0),
        ("train: 20 records, 10 MB/s, 0:00:03 left", 1),
        ("train: 20 records, 5 MB/s, 0:00:06 left", 1),
    ]
    assert shown.closed


def test_progress_is_shown_from_two_seconds_on():
    shown, now = _Shown(), [0.0]
    with progress.Progress("verify", 3, lambda: shown, lambda: now[0], size=400, counted="") as told:
        now[0] = 1.9
        told.add(0, 100)
        assert shown.lines == []
        now[0] = 2.0
        told.add(0, 0)
        assert shown.lines == [("verify: 0 MB/s, 0:00:06 left", 0)]
    with progress.Progress("ls", 0, lambda: 1 / 0, lambda: now[0], counted="objects") as told:
        told.add(7, 0)  # finished earlier: no display is created
        now[0] = 4.0
        assert told.text == "ls: 7 objects, 4/s"


def test_progress_recognises_terminals_and_notebooks(monkeypatch, capsys):
    assert progress.progress_for("x", 1)._open_display is None  # piped
    with progress.progress_for("x", 1, wanted=True) as told:
        told.add(1_000, 10)
        told.add_shard()
    assert "1,000 records" in capsys.readouterr().err

    class ZMQInteractiveShell:
        pass

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=ZMQInteractiveShell))
    made_bars = []
    monkeypatch.setattr("tqdm.auto.tqdm", lambda **options: made_bars.append(options) or _Bar())
    with progress.progress_for("x", 3, wanted=True, unit="files") as told:
        told.add(5, 5)
    assert made_bars == [{"total": 3, "unit": "file"}]


class _Bar:
    n = 0

    def set_description_str(self, text, refresh):
        assert refresh
        assert "records" in text

    def close(self):
        pass


def test_index_and_verify_show_progress(tmp_path, capsys):
    url = f"{tmp_path}/train-{{}}.tar"
    t2t.pack([{"__key__": f"{n}", "txt": "x"} for n in range(6)], url, shard_size=None, shard_records=2)
    t2t.index(f"{tmp_path}/train-{{0..2}}.tar", progress=True)
    assert re.search(r"3/3 shards, index: 6 records, ", capsys.readouterr().err)
    t2t.open(f"{tmp_path}/train-{{0..2}}.tar").export(tmp_path / "out", shard_records=3, workers=1, progress=False)
    t2t.load(tmp_path / "out").verify(progress=True)
    assert re.search(r"2/2 files, verify: \d+ MB/s", capsys.readouterr().err)
    t2t.load(tmp_path / "out").verify()
    assert capsys.readouterr().err == ""


def test_progress_without_extras(monkeypatch, capsys):
    for name in ("rich.console", "rich.progress", "rich"):
        monkeypatch.setitem(sys.modules, name, None)
    with progress.progress_for("x", 2, wanted=True) as told:
        told.add(7, 7)
    assert "0/2 shards, x: 7 records" in capsys.readouterr().err
