"""TorNet's run-time code blocks in an environment without TensorFlow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ais_tar2tf import tornet
from tests.servers.environments import WITHOUT_TENSORFLOW
from tests.support.tornet_data import ROOT, by_event, expected

SCRIPT = """
import importlib.util
import ais_tar2tf.compat
import tensorflow_datasets as tfds
import tornet.data.tfds.tornet.tornet_dataset_builder # registers 'tornet'

ds = tfds.data_source('tornet')
d = ds['train-2015'][5] # grab a sample
print(importlib.util.find_spec('tensorflow'), d['event_id'][0], float(d['DBZ'][d['DBZ'] == d['DBZ']].sum()))
"""


@pytest.mark.full
@pytest.mark.servers("no-tensorflow")
def test_random_access_without_tensorflow(tornet_root: Path, tmp_path: Path) -> None:
    tornet.build(tornet_root, tmp_path / "data", file_format="array_record", progress=False)
    done = subprocess.run(
        [str(WITHOUT_TENSORFLOW.path), "-c", SCRIPT],
        env={"TFDS_DATA_DIR": str(tmp_path / "data"), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    spec, event, echo = done.stdout.split()
    wanted = expected(by_event(tornet_root)[int(event)])["DBZ"]
    assert (spec, float(echo)) == ("None", float(wanted[wanted == wanted].sum()))
