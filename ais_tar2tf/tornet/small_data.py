"""Small data like TorNet's: netCDF files with its variables, shapes and attributes, and the catalog.

    python -m ais_tar2tf.tornet.small_data OUT --samples 40 --years 2013 2015
    python -m ais_tar2tf.tornet.small_data OUT --samples 40 --shards BUCKET

The fields are smooth, quantised as radars quantise, and full of gaps. A tornado is a couplet of velocities within an
echo, so that a model has something to learn.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.tornet.layout import CATEGORIES, FRAMES, RADAR, RADAR_SHAPE, VARIABLES

__all__ = ["Event", "events", "make", "write_catalog", "write_netcdf"]

_COLUMNS = ("event_id", "filename", "category", "type", "ef_number", "start_time", "end_time", "radar")
_STEPS = {"DBZ": 0.5, "VEL": 0.5, "KDP": 0.05, "RHOHV": 1 / 300, "ZDR": 1 / 16, "WIDTH": 0.5}
_MIDDLE = {"DBZ": 25.0, "VEL": 0.0, "KDP": 0.5, "RHOHV": 0.95, "ZDR": 0.5, "WIDTH": 3.0}
_SPREAD = {"DBZ": 12.0, "VEL": 10.0, "KDP": 0.6, "RHOHV": 0.04, "ZDR": 1.0, "WIDTH": 1.5}
_KNOTS = (9, 17)  # of the smooth fields, over azimuth and range
_TEXTURE = 0.15  # of the spread: neighbours differ by a step or two; a file has 0.7 MB, the real ones some 0.8
_GAP = 0.25  # the smooth field's level under which there is no echo: some 60 % of the gates
_BETWEEN_FRAMES = timedelta(minutes=5)
_TEST_EVERY = 4  # rounds
_TORNADO_SHARE = 0.25  # more than the real data's 7 %, so that a few dozen samples have some


@dataclass(frozen=True)
class Event:
    """One sample to be made."""

    number: int
    kind: str  # train or test
    category: str
    ef_number: int
    ends: datetime

    @property
    def starts(self) -> datetime:
        return self.ends - (FRAMES - 1) * _BETWEEN_FRAMES

    @property
    def filename(self) -> str:
        stem = f"{self.category}_{self.ends:%y%m%d_%H%M%S}_KXYZ_{self.number:07d}"
        return f"{self.kind}/{self.ends.year}/{stem}.nc"


def events(samples: int, years: Sequence[int] = (2013, 2014, 2015), *, seed: int = 0) -> Iterator[Event]:
    """`samples` events, in turn of the `years` as they are listed; every fourth round is for testing."""
    draw = np.random.default_rng(seed)
    for number in range(samples):
        year = years[number % len(years)]
        kind = "test" if number // len(years) % _TEST_EVERY == _TEST_EVERY - 1 else "train"
        tornado = draw.random() < _TORNADO_SHARE
        category = "TOR" if tornado else ("WRN" if draw.random() < 0.3 else "NUL")
        ends = datetime(year, 4, 1, tzinfo=UTC) + timedelta(seconds=int(draw.integers(0, 180 * 86_400)))
        yield Event(number, kind, category, int(draw.integers(0, 4)) if tornado else -1, ends)


def make(root: str | Path, samples: int, years: Sequence[int] = (2013, 2014, 2015), *, seed: int = 0) -> list[Event]:
    """Write `samples` netCDF files and `catalog.csv` below `root`, as the extracted data set has them."""
    made = list(events(samples, years, seed=seed))
    for event in made:
        write_netcdf(Path(root) / event.filename, event, seed=seed)
    write_catalog(Path(root), made)
    return made


def write_catalog(root: Path, made: Sequence[Event]) -> None:
    """`catalog.csv` of these events."""
    with (root / "catalog.csv").open("w", newline="", encoding="utf-8") as file:
        rows: Any = csv.DictWriter(file, _COLUMNS)
        rows.writeheader()
        for event in made:
            times = {"start_time": f"{event.starts:%Y-%m-%d %H:%M:%S}", "end_time": f"{event.ends:%Y-%m-%d %H:%M:%S}"}
            known = {"event_id": event.number, "type": event.kind, "radar": "KXYZ", "filename": event.filename}
            rows.writerow({**known, **times, "category": event.category, "ef_number": event.ef_number})


def write_netcdf(path: Path, event: Event, *, seed: int = 0) -> None:
    """One sample as a netCDF file, deflated as xarray deflates, in one chunk a variable, as netCDF-C chunks."""
    try:
        import xarray as xr
    except ImportError as error:
        raise MissingDependency("xarray", extra="tornet") from error
    draw = np.random.default_rng((seed, event.number))
    dimensions = ("time", "azimuth", "range", "sweep")
    variables: dict[str, Any] = {name: (dimensions, values) for name, values in _fields(event, draw).items()}
    first_azimuth, first_range = float(draw.uniform(0, 300)), float(draw.uniform(5_000, 100_000))
    variables["frame_labels"] = ("time", _labels(event))
    variables["azimuth_limits"] = ("limits", np.array([first_azimuth, first_azimuth + 60], "f4"))
    variables["range_limits"] = ("limits", np.array([first_range, first_range + 60_000], "f4"))
    times = [(event.starts + frame * _BETWEEN_FRAMES).replace(tzinfo=None) for frame in range(FRAMES)]
    dataset = xr.Dataset(variables, {"time": np.array(times, "datetime64[ns]")}, _attributes(event))
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": RADAR_SHAPE}
    encoding = dict.fromkeys(VARIABLES, how)
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def _attributes(event: Event) -> dict[str, Any]:
    attributes = {"category": event.category, "event_id": event.number, "ef_number": event.ef_number, "radar": "KXYZ"}
    if event.category != "TOR":
        return attributes
    begin = event.ends - _BETWEEN_FRAMES
    ended = event.ends + _BETWEEN_FRAMES
    written = {"tornado_start_time": f"{begin:%Y-%m-%d %H:%M:%S}", "tornado_end_time": f"{ended:%Y-%m-%d %H:%M:%S}"}
    return {**attributes, **written}


def _labels(event: Event) -> Any:
    """A tornado is there from the last but one frame on."""
    return (np.arange(FRAMES) >= FRAMES - 2).astype("uint8") * np.uint8(event.category == "TOR")


def _fields(event: Event, draw: Any) -> dict[str, Any]:
    echo = _smooth(draw)
    bump, sides = _couplet(draw) if event.category == "TOR" else (0.0, 0.0)
    gaps = echo + 4 * bump < _GAP  # no tornado without an echo
    fields: dict[str, Any] = {}
    for name in RADAR:
        values = _MIDDLE[name] + _SPREAD[name] * (_smooth(draw) + _TEXTURE * draw.standard_normal(RADAR_SHAPE))
        values += bump * (25 if name == "DBZ" else 60 * sides if name == "VEL" else 0)
        quantised = (np.round(values / _STEPS[name]) * _STEPS[name]).astype("f4")
        quantised[gaps] = np.nan
        fields[name] = quantised
    folded = _smooth(draw) > 1.5
    fields["range_folded_mask"] = (folded & gaps).astype("f4")
    return fields


def _smooth(draw: Any) -> Any:
    """A smooth field of unit spread that drifts from frame to frame and differs a little between sweeps."""
    _, azimuths, ranges, sweeps = RADAR_SHAPE
    across, along = _between(azimuths, _KNOTS[0]), _between(ranges, _KNOTS[1])
    knots = draw.standard_normal(_KNOTS)
    frames = []
    for _ in range(FRAMES):
        knots = 0.95 * knots + 0.3 * draw.standard_normal(_KNOTS)
        both = [across @ (knots + 0.2 * draw.standard_normal(_KNOTS)) @ along.T for _ in range(sweeps)]
        frames.append(np.stack(both, axis=-1))
    return np.stack(frames)


def _between(gates: int, knots: int) -> Any:
    """The matrix that puts `gates` values between `knots` ones, linearly."""
    at = np.linspace(0, knots - 1, gates)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(knots)))


def _couplet(draw: Any) -> tuple[Any, Any]:
    """A strong echo, growing until the last frame, and on which of its sides winds blow away and towards."""
    _, azimuths, ranges, _ = RADAR_SHAPE
    azimuth = (np.arange(azimuths) - draw.uniform(40, 80))[:, None]
    distance = (np.arange(ranges) - draw.uniform(80, 160))[None, :]
    bump = np.exp(-(azimuth**2 + distance**2) / 128)
    grown = np.linspace(0.4, 1, FRAMES)[:, None, None, None]
    return grown * bump[None, :, :, None], np.clip(azimuth / 4, -1, 1)[None, :, :, None]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.tornet.small_data", description=__doc__)
    parser.add_argument("out", type=Path, help="where catalog.csv, train/ and test/ go (TORNET_ROOT)")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--years", type=int, nargs="+", default=[2013, 2014, 2015])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--shards", metavar="BUCKET", help="put the samples as tar shards there, too: a URL or a folder"
    )
    parser.add_argument("--shards-per-split", type=int, default=10)
    given = parser.parse_args(arguments)
    made = make(given.out, given.samples, given.years, seed=given.seed)
    counts = ", ".join(f"{sum(event.category == name for event in made)} {name}" for name in CATEGORIES)
    print(f"{given.out}: {len(made)} samples ({counts})")
    if given.shards:
        from ais_tar2tf.tornet.shards import pack

        for url in pack(given.out, given.shards, shards=given.shards_per_split):
            print(url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
