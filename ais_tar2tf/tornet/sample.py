"""The reader of one TorNet sample: its netCDF file becomes the features of `layout`, as numpy arrays."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tornet.layout import CATEGORIES, FEATURES, VARIABLES
from ais_tar2tf.values import hdf5

__all__ = ["read_sample"]

_OTHER_VARIABLES = ("frame_labels", "time", "azimuth_limits", "range_limits")


def read_sample(source: bytes | str | os.PathLike[str], name: str | None = None) -> dict[str, Any]:
    """Read the features of a sample from its netCDF file.

    Args:
        source: The bytes or the path of the file.
        name: The name of the file in errors.

    Returns:
        A dict of numpy arrays by feature name.

    Raises:
        SchemaError: The file is damaged, or no TorNet sample.
        MissingDependency: h5py is not installed.

    Example:
        sample = tornet.read_sample("TOR_150506_235930_KXYZ_0000001.nc")
    """
    name = name or ("the netCDF file" if isinstance(source, bytes) else os.fspath(source))
    try:
        file = hdf5.read(source, (*VARIABLES, *_OTHER_VARIABLES))
        sample = _features(file.variables, file.attributes)
    except (SchemaError, KeyError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SchemaError(f"{name}: not a TorNet sample: {reason}") from error
    for feature, (shape, dtype) in FEATURES.items():
        if sample[feature].shape != shape:
            raise SchemaError(f"{name}: {feature} has shape {sample[feature].shape}, not {shape}")
        sample[feature] = np.ascontiguousarray(sample[feature], dtype)
    return sample


def _features(variables: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    category = str(attributes["category"])
    if category not in CATEGORIES:
        raise SchemaError(f"category {category!r} is none of {', '.join(CATEGORIES)}")
    ef_number = int(attributes["ef_number"])
    label = variables["frame_labels"].astype("uint8")
    label[-1:] = ef_number >= 0  # the last frame is the one to predict
    azimuths, ranges = variables["azimuth_limits"], variables["range_limits"]
    return {
        **{name: variables[name] for name in VARIABLES},
        "label": label,
        "time": variables["time"].astype("datetime64[s]").astype("int64"),
        "category": np.array([CATEGORIES[category]]),
        "event_id": np.array([int(attributes["event_id"])]),
        "ef_number": np.array([ef_number]),
        "tornado_start_time": np.array([_seconds(attributes.get("tornado_start_time"))]),
        "tornado_end_time": np.array([_seconds(attributes.get("tornado_end_time"))]),
        "az_lower": azimuths[0:1],
        "az_upper": azimuths[1:2],
        "rng_lower": ranges[0:1],
        "rng_upper": ranges[1:2],
    }


def _seconds(time: Any) -> int:
    """Return the seconds from 1970 to a time in UTC; 0 without a time."""
    if time is None or not str(time):
        return 0
    parsed = datetime.fromisoformat(str(time))
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())
