"""TorNet as tar shards for training: values compared with xarray, channels compared with numpy, and the example."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import tornet
from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.tornet.training import RANGES
from tests.support.tornet_data import ROOT, assert_same, by_event, expected


@pytest.fixture(scope="module")
def tornet_server(tornet_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("buckets")
    tornet.pack(tornet_root, f"{folder}/tornet", shards=2, progress=False)
    with t2t.serve(folder) as server:
        yield server


def test_ten_shards_are_numbered_as_documented(tornet_root: Path, tmp_path: Path) -> None:
    written = tornet.pack(tornet_root, str(tmp_path), shards=10, progress=False)
    assert [Path(url).name for url in written if "train-2015" in url] == [f"train-2015-{n:02d}.tar" for n in range(6)]


@pytest.fixture(scope="module")
def samples(tornet_server: Any) -> list[dict[str, Any]]:
    dataset = tornet.stream("ais://tornet/t*-2015-*.tar", endpoint=tornet_server.url)
    return list(dataset.as_numpy_iterator())


def test_every_streamed_value_is_the_netcdf_files(tornet_root: Path, samples: list[dict[str, Any]]) -> None:
    files = by_event(tornet_root)
    for sample in samples:
        assert_same(sample, expected(files[int(sample["event_id"][0])]))
    of_2015 = {event for event, path in files.items() if path.parts[-2] == "2015"}
    assert {int(sample["event_id"][0]) for sample in samples} == of_2015


def test_streamed_samples_equal_those_of_the_built_data_set(
    tornet_server: Any, tornet_root: Path, tmp_path: Path
) -> None:
    builder = tornet.builder(data_dir=tmp_path, file_format="tfrecord")
    streamed = tornet.stream("ais://tornet/train-2015-{0..1}.tar", endpoint=tornet_server.url).element_spec
    specs = builder.info.features.get_tensor_spec()
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in streamed.items()} == {
        name: (list(spec.shape), spec.dtype) for name, spec in specs.items()
    }


def test_a_template_opens_the_shards(tornet_server: Any, tornet_root: Path) -> None:
    source = t2t.open("ais://tornet/train-2015-{0..1}.tar", endpoint=tornet_server.url)
    records = list(source.records())
    assert len(records) == 6
    for record in records:
        assert record["nc"] == (tornet_root / f"{record['__key__']}.nc").read_bytes()
        decoded = t2t.arrays.decode_record(record)["nc"]
        np.testing.assert_array_equal(decoded["DBZ"], tornet.read_sample(record["nc"])["DBZ"])


def test_only_the_chosen_features_are_given(tornet_server: Any) -> None:
    dataset = tornet.stream(
        "ais://tornet/test-2015-0.tar",
        features=["VEL", "label"],
        endpoint=tornet_server.url,
        batch=1,
        shuffle=True,
        seed=1,
    )
    assert {name: spec.shape.as_list() for name, spec in dataset.element_spec.items()} == {
        "VEL": [None, 4, 120, 240, 2],
        "label": [None, 4],
    }
    with pytest.raises(SchemaError, match="TorNet has no feature 'SPEED'"):
        tornet.stream("ais://tornet/test-2015-0.tar", features=["SPEED"], endpoint=tornet_server.url)


def test_a_sample_that_does_not_decode_is_named(tornet_root: Path, tmp_path: Path) -> None:
    records = [{"__key__": "bad", "nc": b"\x89HDF\r\n\x1a\n" + bytes(50)}]
    (shard,) = t2t.pack(records, f"{tmp_path}/bad.tar", progress=False)
    with pytest.raises(MappingError, match=r"bad.tar, record 'bad': the netCDF file: not a TorNet sample"):
        list(tornet.stream(shard))


def test_packing_in_shards_by_size(tornet_root: Path, tmp_path: Path) -> None:
    urls = tornet.pack(tornet_root, f"{tmp_path}/b", shard_size="2MB", progress=False)
    names = [Path(url).name for url in urls]
    assert names[:1] == ["test-2013-000.tar"]
    assert sum(name.startswith("train-2015") for name in names) > 1
    assert sum(1 for _ in t2t.open(f"{tmp_path}/b/").records()) == len(by_event(tornet_root))


# Channels


def _numpy_channels(sample: dict[str, Any], variables: list[str], frames: int) -> Any:
    parts = []
    for name in variables:
        least, most = RANGES[name]
        scaled = (sample[name][-frames:].astype("f8") - least) / (most - least)
        parts.append(np.where(np.isnan(scaled), -3.0, scaled))
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("variables", [["DBZ", "VEL"], ["WIDTH", "range_folded_mask", "KDP"]])
def test_variables_are_stacked_both_ways(samples: list[dict[str, Any]], variables: list[str], frames: int) -> None:
    sample = {name: tf.constant(value) for name, value in samples[0].items()}
    wanted = _numpy_channels(samples[0], variables, frames)
    last, label = tornet.pair(variables, frames=frames)(sample)
    first, _ = tornet.pair(variables, tilt_last=False, frames=frames)(sample)
    if frames == 1:
        wanted = wanted[0]
    np.testing.assert_allclose(last.numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(first.numpy(), np.moveaxis(wanted, -1, -3), rtol=1e-5, atol=1e-5)
    assert label.numpy().tolist() == [float(samples[0]["label"][-1])]


def test_invalid_pairs() -> None:
    with pytest.raises(SchemaError, match="not SPEED"):
        tornet.pair(["SPEED"])
    with pytest.raises(SchemaError, match="4 frames, not 5"):
        tornet.pair(frames=5)


def test_weights_follow_the_labels() -> None:
    pairs = tf.data.Dataset.from_tensor_slices((tf.zeros((3, 2)), tf.constant([[1.0], [0.0], [1.0]])))
    weights = [float(weight) for _, _, weight in pairs.map(tornet.weighted(5.0))]
    assert weights == [5.0, 1.0, 5.0]


def test_the_example_trains_in_both_orders_of_axes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tornet_training.py"), "--samples", "24", "--epochs", "1"],
        env={"PYTHONPATH": str(ROOT), "PATH": str(Path(shutil.which("true") or "/bin/true").parent)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["(azimuth, range, channels)", "(channels, azimuth, range)"]
    for line in lines:
        auc = re.search(r"AUC ([\d.]+), test AUC ([\d.]+)$", line)
        assert auc is not None, line
        assert all(0 <= float(each) <= 1 for each in auc.groups())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_example_learns() -> None:
    """With more samples, the model recognises tornadoes that it was not trained on."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tornet_training.py"), "--samples", "160", "--epochs", "5"],
        env={"PYTHONPATH": str(ROOT), "PATH": str(Path(shutil.which("true") or "/bin/true").parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    learned = [float(each) for each in re.findall(r"of the test ([\d.]+)", done.stdout)]
    assert len(learned) == 2, done.stdout
    assert min(learned) > 0.8, done.stdout
