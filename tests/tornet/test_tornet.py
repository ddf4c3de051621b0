"""TorNet as a TFDS data set: the document's code, values compared with xarray, builds compared with TFDS's."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

import ais_tar2tf.tornet.tornet_dataset_builder as module
from ais_tar2tf import tornet
from ais_tar2tf.base.monitoring.progress import progress_for
from ais_tar2tf.errors import ExportError, MissingDependency, SchemaError, ShardNotFound
from ais_tar2tf.tornet import building, record_file
from ais_tar2tf.tornet.catalog import evenly_divided, read_catalog
from ais_tar2tf.tornet.small_data import make
from tests.support.leftovers import left_open, open_files
from tests.support.tornet_data import assert_same, by_event, expected, run

FORMATS = ("tfrecord", "array_record")

BUILD_ARRAY_RECORD = """
# Builds tornet in array_record format
import os
import tensorflow_datasets as tfds
import tornet.data.tfds.tornet.tornet_dataset_builder

TORNET_ROOT=os.environ['TORNET_ROOT'] # where tornet files live
TFDS_DATA_DIR=os.environ['TFDS_DATA_DIR'] # where tfds data is to be rewritten

dl_config=tfds.download.DownloadConfig(manual_dir=TORNET_ROOT)
tfds.data_source('tornet',
                data_dir=TFDS_DATA_DIR,
                builder_kwargs={'file_format':'array_record'},
                download_and_prepare_kwargs={'download_config':dl_config})
"""

USE_ARRAY_RECORD = """
import tensorflow_datasets as tfds
import tornet.data.tfds.tornet.tornet_dataset_builder # registers 'tornet'

ds = tfds.data_source('tornet')
d = ds['train-2015'][5] # grab a sample
"""

BUILD_TFRECORD = """
# builds tornet in tfrecord format
import os
import tensorflow_datasets as tfds
import tornet.data.tfds.tornet.tornet_dataset_builder

TORNET_ROOT=os.environ['TORNET_ROOT'] # where tornet files live
TFDS_DATA_DIR=os.environ['TFDS_DATA_DIR'] # where tfds data is to be rewritten

dl_config=tfds.download.DownloadConfig(manual_dir=TORNET_ROOT)
builder = tfds.builder('tornet', 
                       data_dir=TFDS_DATA_DIR, 
                       **{'file_format':'tfrecord'})
builder.download_and_prepare(**{'download_config':dl_config})
"""  # noqa: W291  # as the document has it

# The document calls `tfds.load('tornet',splits=[…])`, which TFDS answers with a TypeError: its name is `split`.
USE_TFRECORD = """
import tensorflow_datasets as tfds
import tornet.data.tfds.tornet.tornet_dataset_builder # registers 'tornet'
from ais_tar2tf import tornet

ds = tornet.load(splits=['train-2013','train-2014'])
"""

ALIASES = "import ais_tar2tf.compat\n"

WITHOUT_TENSORFLOW = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in ("tensorflow", "keras", "h5py", "xarray", "pandas")
        return None if hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""

TELL = """
import sys
echo = float(d['DBZ'][d['DBZ'] == d['DBZ']].sum())
print(d['event_id'][0], echo, d['label'].tolist(), 'tensorflow' in sys.modules)
"""


@pytest.fixture(scope="module")
def built(tornet_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Build both formats in this process, with two files in each split."""
    made: dict[str, Any] = {}
    for file_format in FORMATS:
        folder = tmp_path_factory.mktemp(file_format)
        made[file_format] = tornet.build(
            tornet_root, folder, file_format=file_format, workers=1, progress=False, num_shards=2
        )
    return made


# The document's four blocks, each in a new process


def test_the_blocks_for_array_record(tornet_root: Path, tmp_path: Path) -> None:
    env = {"TORNET_ROOT": str(tornet_root), "TFDS_DATA_DIR": str(tmp_path)}
    run(ALIASES + BUILD_ARRAY_RECORD, env=env)
    told = run(WITHOUT_TENSORFLOW + ALIASES + USE_ARRAY_RECORD + TELL, env={"TFDS_DATA_DIR": str(tmp_path)}).split()
    wanted = expected(by_event(tornet_root)[int(told[0])])
    assert float(told[1]) == float(wanted["DBZ"][~np.isnan(wanted["DBZ"])].sum())
    assert "".join(told[2:-1]) == str(wanted["label"].tolist()).replace(" ", "")
    assert told[-1] == "False"


def test_an_installed_tensorflow_is_not_imported(built: dict[str, Any]) -> None:
    folder = str(Path(built["array_record"].data_dir).parents[1])
    assert run(ALIASES + USE_ARRAY_RECORD + TELL, env={"TFDS_DATA_DIR": folder}).split()[-1] == "False"


def test_the_blocks_for_tfrecord(tornet_root: Path, tmp_path: Path) -> None:
    env = {"TORNET_ROOT": str(tornet_root), "TFDS_DATA_DIR": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "2"}
    count = "\nprint(*[int(e['event_id'][0]) for split in ds for e in split.as_numpy_iterator()])"
    told = run(ALIASES + BUILD_TFRECORD + USE_TFRECORD + count, env=env).split()
    years = {"train-2013", "train-2014"}
    assert sorted(
        map(int, told[-sum(len(f) for s, f in read_catalog(tornet_root).items() if s in years) :])
    ) == sorted(
        event for event, path in by_event(tornet_root).items() if f"{path.parts[-3]}-{path.parts[-2]}" in years
    )


def test_an_installed_package_of_that_name_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "tornet").mkdir()
    (tmp_path / "tornet" / "__init__.py").write_text("theirs = True")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ALIASES}import tornet; print(tornet.theirs)"
    assert run(script, env={}) == "True\n"


# Values


def test_every_value_is_the_netcdf_files(tornet_root: Path, built: dict[str, Any]) -> None:
    files, seen = by_event(tornet_root), []
    for split, source in built["tfrecord"].as_data_source().items():
        for sample in source:
            path = files[int(sample["event_id"][0])]
            assert split == f"{path.parts[-3]}-{path.parts[-2]}"
            assert_same(sample, expected(path))
            seen.append(path)
    assert sorted(seen) == sorted(files.values())


def test_both_formats_have_the_same_sample_at_each_number(built: dict[str, Any]) -> None:
    sources = [built[file_format].as_data_source() for file_format in FORMATS]
    assert sources[0].keys() == sources[1].keys()
    for split, ours in sources[0].items():
        theirs = sources[1][split]
        assert len(ours) == len(theirs)
        for number in (*range(len(ours)), -1, -len(ours)):
            assert_same(ours[number], theirs[number])


def test_slices_and_negative_numbers(built: dict[str, Any]) -> None:
    for file_format in FORMATS:
        source = built[file_format].as_data_source("train-2015")
        events = [int(sample["event_id"][0]) for sample in source]
        for part in (slice(2, 5), slice(None, None, 3), slice(-2, None), slice(None, None, -1), slice(99, None)):
            assert [int(sample["event_id"][0]) for sample in source[part]] == events[part]
            assert len(source[part]) == len(events[part])
        assert int(source[1:][2:][-1]["event_id"][0]) == events[-1]
        assert [int(s["event_id"][0]) for s in source.__getitems__([4, 0, -1])] == [events[4], events[0], events[-1]]
        assert source.__getitems__([]) == []
        for beyond in (len(source), -len(source) - 1):
            with pytest.raises(IndexError):
                source[beyond]


def test_slices_of_splits_are_those_of_tfds(built: dict[str, Any]) -> None:
    """Compare the numbers of samples with TFDS's own readers of the same files."""
    from tensorflow_datasets.core.data_sources.array_record import ArrayRecordDataSource

    for split in ("train-2015[2:5]", "train-2015[-4:]", "train-2013+train-2014[:2]"):
        stock = [int(e["event_id"][0]) for e in ArrayRecordDataSource(built["array_record"].info, split)]
        for file_format in FORMATS:
            assert [int(e["event_id"][0]) for e in built[file_format].as_data_source(split)] == stock
    in_tensorflow = tfds.as_numpy(built["tfrecord"].as_dataset(split=split))
    assert [int(e["event_id"][0]) for e in in_tensorflow] == stock


def test_the_stock_reader_decodes_the_same(built: dict[str, Any]) -> None:
    from tensorflow_datasets.core.data_sources.array_record import ArrayRecordDataSource

    builder = built["array_record"]
    stock, ours = ArrayRecordDataSource(builder.info, "test-2013"), builder.as_data_source("test-2013")
    for number in range(len(stock)):
        assert_same(ours[number], stock[number])


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("encoding", ["none", pytest.param("bytes", marks=pytest.mark.full)])
def test_other_encodings_have_the_same_values(
    tornet_root: Path, tmp_path: Path, file_format: str, encoding: str
) -> None:
    subset = tmp_path / "subset"
    _link(tornet_root, subset, lambda row: row["end_time"] < "2014")
    options = {"file_format": file_format, "encoding": encoding, "workers": 1, "progress": False}
    tornet.build(subset, tmp_path, **options)
    again = tornet.builder(data_dir=tmp_path)  # the encoding is that of the data
    assert again.encoding == encoding
    assert again.info.file_format.value == file_format
    files = by_event(tornet_root)
    for sample in again.as_data_source("train-2013"):
        assert_same(sample, expected(files[int(sample["event_id"][0])]))
    (first, *_) = tfds.as_numpy(again.as_dataset(split="train-2013"))
    assert_same(first, expected(files[int(first["event_id"][0])]))
    with pytest.raises(SchemaError, match=f"holds TorNet with encoding '{encoding}', not 'zlib'"):
        module.Builder(data_dir=tmp_path, encoding="zlib")


def test_features_are_those_of_the_published_data_set(built: dict[str, Any]) -> None:
    features = built["tfrecord"].info.features
    radar = ["DBZ", "KDP", "RHOHV", "VEL", "WIDTH", "ZDR", "range_folded_mask"]
    assert {name: (features[name].shape, features[name].np_dtype) for name in radar} == dict.fromkeys(
        radar, ((4, 120, 240, 2), np.float32)
    )
    assert (features["label"].shape, features["label"].np_dtype) == ((4,), np.uint8)
    assert (features["time"].shape, features["time"].np_dtype) == ((4,), np.int64)
    integers = ["category", "ef_number", "event_id", "tornado_end_time", "tornado_start_time"]
    assert all((features[n].shape, features[n].np_dtype) == ((1,), np.int64) for n in integers)
    floats = ["az_lower", "az_upper", "rng_lower", "rng_upper"]
    assert all((features[n].shape, features[n].np_dtype) == ((1,), np.float32) for n in floats)
    assert set(features) == {*radar, "label", "time", *integers, *floats}
    assert (module.Builder.name, str(module.Builder.VERSION)) == ("tornet", "1.1.0")


# load


@pytest.mark.parametrize("file_format", FORMATS)
def test_load_accepts_both_spellings(built: dict[str, Any], file_format: str) -> None:
    folder = Path(built[file_format].data_dir).parents[1]
    first, second = tornet.load(splits=["test-2013", "test-2014"], data_dir=folder)
    assert {int(e["time"][0]) for e in first.as_numpy_iterator()} == {
        int(e["time"][0]) for e in tornet.load(split="test-2013", data_dir=folder).as_numpy_iterator()
    }
    assert second.element_spec["DBZ"].shape == (4, 120, 240, 2)
    with pytest.raises(SchemaError, match="two names of one thing"):
        tornet.load(splits="train-2013", split="train-2013", data_dir=folder)


def test_shuffled_array_records_are_the_same_samples(built: dict[str, Any]) -> None:
    builder = built["array_record"]
    plain = [int(e["event_id"][0]) for e in tfds.as_numpy(builder.as_dataset(split="train-2015"))]
    shuffled = builder.as_dataset(split="train-2015", shuffle_files=True)
    orders = [[int(e["event_id"][0]) for e in tfds.as_numpy(shuffled)] for _ in range(3)]
    assert all(sorted(order) == sorted(plain) for order in orders)
    assert any(order != plain for order in orders)


# Building


def test_order_and_splits_equal_those_of_stock_tfds(
    tornet_root: Path, built: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with TFDS's GeneratorBasedBuilder, which writes our generator's samples in one process."""
    monkeypatch.setattr(module.Builder, "_generate_splits", tfds.core.GeneratorBasedBuilder._generate_splits)
    stock = module.Builder(data_dir=tmp_path, file_format="tfrecord")
    stock.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=tornet_root))
    ours = built["tfrecord"]
    assert set(stock.info.splits) == set(ours.info.splits)
    for split in stock.info.splits:
        assert stock.info.splits[split].num_examples == ours.info.splits[split].num_examples
        theirs = stock.as_data_source(split)
        assert [int(s["event_id"][0]) for s in theirs] == [int(s["event_id"][0]) for s in ours.as_data_source(split)]


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("tornet-*"))
    }


@pytest.mark.parametrize("file_format", FORMATS)
def test_several_processes_write_the_same_files(
    tornet_root: Path, built: dict[str, Any], tmp_path: Path, file_format: str
) -> None:
    made = tornet.build(tornet_root, tmp_path, file_format=file_format, workers=3, progress=False, num_shards=2)
    ours, alone = Path(made.data_dir), Path(built[file_format].data_dir)
    assert _digests(ours) == _digests(alone)
    assert {path.name for path in ours.parent.iterdir()} == {"1.1.0"}  # no temporary files are left
    info = [json.loads((folder / "dataset_info.json").read_text())["splits"] for folder in (ours, alone)]
    assert info[0] == info[1]


def test_an_interrupted_build_is_resumed(tornet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = record_file.read_sample

    def failing(path: Path) -> dict[str, Any]:
        if len(written) == 12:
            raise KeyboardInterrupt
        written.append(path.name)
        return real(path)

    monkeypatch.setattr(record_file, "read_sample", failing)
    options = {"file_format": "tfrecord", "workers": 1, "progress": False, "num_shards": 2}
    with pytest.raises(KeyboardInterrupt):
        tornet.build(tornet_root, tmp_path, **options)
    assert not (tmp_path / "tornet" / "1.1.0").exists()
    (work,) = (tmp_path / "tornet").glob(".building-*")
    finished = {path.name for path in work.rglob("tornet-*") if path.suffix != ".json"}
    assert finished
    again: list[str] = []
    monkeypatch.setattr(record_file, "read_sample", lambda path: again.append(path.name) or real(path))
    made = tornet.build(tornet_root, tmp_path, **options)
    in_finished = sum(len(files) for files in _files_of(tornet_root, made, finished).values())
    assert len(again) == len(by_event(tornet_root)) - in_finished
    assert not work.exists()
    assert sum(1 for source in made.as_data_source().values() for _ in source) == len(by_event(tornet_root))


def _files_of(root: Path, made: Any, names: set[str]) -> dict[str, range]:
    found: dict[str, range] = {}
    for split, info in made.info.splits.items():
        for path, length in zip(info.filepaths, info.shard_lengths, strict=True):
            if path.name in names:
                found[f"{split} {path.name}"] = range(length)
    return found


def test_a_worker_that_fails_names_the_file(tornet_root: Path, tmp_path: Path) -> None:
    subset = tmp_path / "subset"
    _link(tornet_root, subset, lambda _: True)
    bad = sorted(subset.glob("train/2014/*.nc"))[0]
    bad.unlink()
    bad.write_bytes(b"\x89HDF\r\n\x1a\nnot at all")
    with pytest.raises(SchemaError, match=f"{re.escape(str(bad))}: not a TorNet sample"):
        tornet.build(subset, tmp_path / "out", file_format="tfrecord", workers=2, progress=False)


def test_a_worker_that_dies_is_an_error(tornet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.sys, "executable", shutil.which("true"))
    with pytest.raises(ExportError, match="a worker process ended by itself"):
        tornet.build(tornet_root, tmp_path, file_format="tfrecord", workers=2, progress=False)


def test_a_worker_that_cannot_be_started_leaves_no_pipe_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.sys, "executable", str(tmp_path / "nothing"))
    before = open_files()
    with pytest.raises(FileNotFoundError) as error:  # its traceback keeps all local objects
        building._Worker()
    assert left_open(before) == []
    assert error.tb is not None


def test_the_progress_bar_shows_samples_and_files(
    tornet_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tornet.build(tornet_root, tmp_path, file_format="tfrecord", workers=2, progress=True)
    told = capfd.readouterr().err
    assert f"{len(by_event(tornet_root))} records" in told
    assert "6/6" in told


def test_progress_counts_files_finished_before(tornet_root: Path, tmp_path: Path) -> None:
    files = tuple(read_catalog(tornet_root)["train-2013"])
    tasks = [
        record_file.Task(tmp_path / f"{number}.tfrecord", tornet_root, share, "tfrecord", "zlib")
        for number, share in enumerate(evenly_divided(files, 2))
    ]
    for _ in range(2):
        progress = progress_for("tornet", len(tasks), wanted=False)
        building.build(tasks, 1, progress)
        assert (progress.records, progress.shards) == (len(files), 2)
        assert progress.bytes == sum(task.payload_bytes for task in tasks)


def test_max_examples_per_split_is_respected(tornet_root: Path, tmp_path: Path) -> None:
    config = tfds.download.DownloadConfig(manual_dir=tornet_root, max_examples_per_split=2)
    made = tornet.builder(data_dir=tmp_path, file_format="tfrecord", workers=1, progress=False)
    made.download_and_prepare(download_config=config)
    counts = {name: info.num_examples for name, info in made.info.splits.items()}
    assert counts == {name: min(2, len(files)) for name, files in read_catalog(tornet_root).items()}


# Subsets of the data


def _link(root: Path, subset: Path, wanted: Any) -> list[dict[str, str]]:
    """Copy some rows of the catalog and their files."""
    with (root / "catalog.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if wanted(row)]
    for row in rows:
        (subset / row["filename"]).parent.mkdir(parents=True, exist_ok=True)
        (subset / row["filename"]).symlink_to(root / row["filename"])
    with (subset / "catalog.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_absent_years_make_no_split(tornet_root: Path, tmp_path: Path) -> None:
    subset = tmp_path / "subset"
    _link(tornet_root, subset, lambda row: row["end_time"].startswith("2014") and row["type"] == "train")
    made = tornet.build(subset, tmp_path / "out", workers=1, progress=False)
    assert set(made.info.splits) == {"train-2014"}


def test_a_listed_file_that_is_absent_is_named_or_skipped(tornet_root: Path, tmp_path: Path) -> None:
    subset = tmp_path / "subset"
    rows = _link(tornet_root, subset, lambda row: row["end_time"].startswith("2015"))
    gone = [row["filename"] for row in rows[:5]]
    for name in gone:
        (subset / name).unlink()
    with pytest.raises(ShardNotFound, match=r"5 files that catalog.csv lists are absent: .*missing=\"skip\"") as told:
        tornet.build(subset, tmp_path / "out", workers=1, progress=False)
    assert sorted(gone)[0] in str(told.value)
    made = tornet.build(subset, tmp_path / "out", workers=1, progress=False, missing="skip")
    assert made.info.splits.total_num_examples == len(rows) - 5


def test_a_folder_without_data_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORNET_ROOT", raising=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShardNotFound, match=r"there is no catalog\.csv: give the folder into which TorNet"):
        tornet.build(tmp_path / "empty", tmp_path / "out", progress=False)
    with pytest.raises(SchemaError, match="TORNET_ROOT"):
        tornet.build(None, tmp_path / "out")
    with pytest.raises(ShardNotFound, match="'tornet' is not built here: call download_and_prepare"):
        tornet.data_source("train-2013", data_dir=tmp_path / "out")


def test_tornet_root_is_used_if_no_folder_is_given(
    tornet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subset = tmp_path / "subset"
    rows = _link(tornet_root, subset, lambda row: row["end_time"].startswith("2014"))
    monkeypatch.setenv("TORNET_ROOT", str(subset))
    (dataset,) = tornet.load(
        splits=["test-2014"], data_dir=tmp_path / "out", builder_kwargs={"progress": False, "workers": 1}
    )
    wanted = {int(row["event_id"]) for row in rows if row["type"] == "test"}
    assert {int(e["event_id"][0]) for e in dataset.as_numpy_iterator()} == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type,start_time,filename\n", "column 'end_time' is missing"),
        ("type,start_time,end_time,filename\ntrain,2013-01-01,2013-01-01,/etc/passwd\n", "leads out of its folder"),
        ("type,start_time,end_time,filename\ntrain,2013-01-01,2013-01-01,a/../../x\n", "leads out of its folder"),
        ("type,start_time,end_time,filename\ntrain,2013-01-01,,a.nc\n", "has no end_time or no filename"),
        ("type,start_time,end_time,filename\n" + "train,2013-01-01,2013-01-01,a.nc\n" * 2, "'a.nc' is listed twice"),
    ],
)
def test_an_invalid_catalog(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "catalog.csv").write_text(text)
    with pytest.raises(SchemaError, match=re.escape(said)):
        read_catalog(tmp_path)


# Samples


def test_a_file_that_is_no_sample_is_refused(tornet_root: Path, tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "sample.nc"

    def changed(change: Any) -> Path:
        shutil.copy(next(iter(by_event(tornet_root).values())), path)
        with h5py.File(path, "r+") as file:
            change(file)
        return path

    with pytest.raises(SchemaError, match="variable 'VEL' is missing"):
        tornet.read_sample(changed(lambda file: file.__delitem__("VEL")))
    with pytest.raises(SchemaError, match="'ef_number' is missing"):
        tornet.read_sample(changed(lambda file: file.attrs.__delitem__("ef_number")))
    with pytest.raises(SchemaError, match="category 'CAT' is none of TOR, NUL, WRN"):
        tornet.read_sample(changed(lambda file: file.attrs.modify("category", "CAT")))

    def shorter(file: Any) -> None:
        del file["ZDR"]
        file["ZDR"] = np.zeros((4, 120, 240), "f4")

    with pytest.raises(SchemaError, match=r"ZDR has shape \(4, 120, 240\), not \(4, 120, 240, 2\)"):
        tornet.read_sample(changed(shorter))


def test_the_last_label_tells_whether_there_was_a_tornado(tornet_root: Path) -> None:
    labels = {path.name[:3]: tornet.read_sample(path)["label"].tolist() for path in by_event(tornet_root).values()}
    assert labels["TOR"][-1] == 1
    assert labels["NUL"] == labels["WRN"] == [0, 0, 0, 0]


def test_small_data_depend_only_on_their_seed(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a", 2), make(tmp_path / "b", 2)
    other = make(tmp_path / "c", 2, seed=1)
    assert first == second != other
    for event in first:
        sample = tornet.read_sample(tmp_path / "a" / event.filename)
        assert_same(sample, tornet.read_sample(tmp_path / "b" / event.filename))
        gaps = np.isnan(sample["DBZ"]).mean()
        assert 0.2 < gaps < 0.9


def test_small_data_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ais_tar2tf.tornet.small_data import main

    bucket = tmp_path / "bucket"
    arguments = [str(tmp_path / "data"), "--samples", "4", "--years", "2013", "--shards", str(bucket)]
    assert main([*arguments, "--shards-per-split", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{tmp_path / 'data'}: 4 samples (")
    assert sorted(path.name for path in bucket.iterdir()) == [
        "test-2013-0.tar",
        "train-2013-0.tar",
        "train-2013-1.tar",
    ]
    assert len(told) == 4
    assert len(list((tmp_path / "data").rglob("*.nc"))) == 4


def test_a_missing_package_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['tensorflow_datasets'] = None\n"
        "from ais_tar2tf import tornet\ntornet.load('train-2013')"
    )
    with pytest.raises(AssertionError, match=r"pip install 'ais_tar2tf\[tornet\]'"):
        run(script, env={})
    assert issubclass(MissingDependency, ImportError)
