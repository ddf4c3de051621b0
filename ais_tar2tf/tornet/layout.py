"""The layout of a sample of TorNet, a data set of weather radar images: names, shapes and types.

This module must not do I/O.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CATEGORIES",
    "FEATURES",
    "FRAMES",
    "RADAR",
    "RADAR_SHAPE",
    "VARIABLES",
    "split_of",
]

CATEGORIES = {"TOR": 0, "NUL": 1, "WRN": 2}
"""The number of each category. TOR: a tornado. NUL: a random storm cell. WRN: a warning without a tornado."""

FRAMES = 4  # radar images of one sample, in the order of time
RADAR_SHAPE = (FRAMES, 120, 240, 2)  # the dimensions are time, azimuth, range and sweep
RADAR = ("DBZ", "VEL", "KDP", "RHOHV", "ZDR", "WIDTH")  # the quantities that the radar measures
VARIABLES = (*RADAR, "range_folded_mask")

FEATURES: dict[str, tuple[tuple[int, ...], str]] = {
    **dict.fromkeys(VARIABLES, (RADAR_SHAPE, "float32")),
    "label": ((FRAMES,), "uint8"),
    "time": ((FRAMES,), "int64"),
    "category": ((1,), "int64"),
    "event_id": ((1,), "int64"),
    "ef_number": ((1,), "int64"),
    "tornado_start_time": ((1,), "int64"),
    "tornado_end_time": ((1,), "int64"),
    "az_lower": ((1,), "float32"),
    "az_upper": ((1,), "float32"),
    "rng_lower": ((1,), "float32"),
    "rng_upper": ((1,), "float32"),
}
"""The shape and type of each feature. Times are seconds since 1970; tornado times are 0 without a tornado."""


def split_of(row: Any) -> str:
    """Return the split to which a row of the catalog belongs: the row's type, and the year of its end time.

    >>> split_of({"type": "train", "end_time": "2015-05-06 23:59:30"})
    'train-2015'
    """
    return f"{row['type']}-{str(row['end_time'])[:4]}"
