"""One TorNet sample out of its netCDF file: the features of `layout`, as numpy arrays."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ais_tar2tf import netcdf
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tornet.layout import CATEGORIES, FEATURES, VARIABLES

__all__ = ["read_sample"]

_OTHERS = ("frame_labels", "time", "azimuth_limits", "range_limits")


def read_sample(source: bytes | str | os.PathLike[str], name: str | None = None) -> dict[str, Any]:
    """The features of a sample, from the bytes or the path of its netCDF file; `name` is for the text of errors."""
    name = name or ("the netCDF file" if isinstance(source, bytes) else os.fspath(source))
    try:
        file = netcdf.read(source, (*VARIABLES, *_OTHERS))
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
    label[-1:] = ef_number >= 0  # the last frame is what is to be told
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
    """Seconds since 1970 of a time written in UTC; 0 for none."""
    if time is None or not str(time):
        return 0
    written = datetime.fromisoformat(str(time))
    return int((written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp())
