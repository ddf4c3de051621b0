"""Read small TorNet data with xarray, to compare with the package's reader."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ais_tar2tf.tornet.layout import CATEGORIES, FEATURES, VARIABLES

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def expected(path: Path) -> dict[str, Any]:
    """Return the expected sample of a file, read by xarray."""
    with xr.open_dataset(path, engine="h5netcdf") as file:
        label = file["frame_labels"].values.astype("uint8")
        label[-1] = int(file.attrs["ef_number"]) >= 0
        sample = {name: file[name].values for name in VARIABLES}
        sample |= {
            "label": label,
            "time": file["time"].values.astype("datetime64[s]").astype("int64"),
            "category": np.array([CATEGORIES[file.attrs["category"]]]),
            "event_id": np.array([file.attrs["event_id"]]),
            "ef_number": np.array([file.attrs["ef_number"]]),
            "az_lower": file["azimuth_limits"].values[:1],
            "az_upper": file["azimuth_limits"].values[1:],
            "rng_lower": file["range_limits"].values[:1],
            "rng_upper": file["range_limits"].values[1:],
        }
        for name in ("tornado_start_time", "tornado_end_time"):
            written = file.attrs.get(name)
            sample[name] = np.array([np.datetime64(written, "s").astype("int64") if written else 0])
        return sample


def assert_same(ours: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare two samples: names, types, shapes and all values, including NaN."""
    assert ours.keys() == wanted.keys()
    for name, (shape, dtype) in FEATURES.items():
        value = np.asarray(ours[name])
        assert value.shape == shape, name
        assert value.dtype == dtype, name
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)


def by_event(root: Path) -> dict[int, Path]:
    """Return the files by event number, the last part of their names."""
    return {int(path.stem.rpartition("_")[2]): path for path in root.glob("t*/*/*.nc")}


def run(script: str, *arguments: str, env: dict[str, str]) -> str:
    """Run a script in a new process and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
