"""A generator of small data like TorNet's, with the same variables, shapes and attributes, and a catalog.

    python -m ais_tar2tf.tornet.small_data OUT --samples 40 --years 2013 2015
    python -m ais_tar2tf.tornet.small_data OUT --samples 40 --shards BUCKET

The radar variables are smooth, quantised like radar data, and full of gaps. A tornado is a couplet of velocities
within an echo, so that a model can learn to recognise it.
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
_QUANTA = {"DBZ": 0.5, "VEL": 0.5, "KDP": 0.05, "RHOHV": 1 / 300, "ZDR": 1 / 16, "WIDTH": 0.5}
_MEAN = {"DBZ": 25.0, "VEL": 0.0, "KDP": 0.5, "RHOHV": 0.95, "ZDR": 0.5, "WIDTH": 3.0}
_SPREAD = {"DBZ": 12.0, "VEL": 10.0, "KDP": 0.6, "RHOHV": 0.04, "ZDR": 1.0, "WIDTH": 1.5}
_KNOTS = (9, 17)  # of smooth arrays, over azimuth and range
_TEXTURE = 0.15  # of the spread; neighbours differ by one or two steps, and a file has 0.7 MB (real files: 0.8 MB)
_GAP = 0.25  # where the smooth array of an echo is below it, at about 60 % of the gates, there is no echo
_FRAME_INTERVAL = timedelta(minutes=5)
_TEST_EVERY = 4  # rounds of years
_TORNADO_SHARE = 0.25  # real data has 7 %, too few for a few dozen samples


@dataclass(frozen=True)
class Event:
    """One sample to generate."""

    number: int
    kind: str  # "train" or "test"
    category: str
    ef_number: int
    ends: datetime

    @property
    def starts(self) -> datetime:
        return self.ends - (FRAMES - 1) * _FRAME_INTERVAL

    @property
    def filename(self) -> str:
        stem = f"{self.category}_{self.ends:%y%m%d_%H%M%S}_KXYZ_{self.number:07d}"
        return f"{self.kind}/{self.ends.year}/{stem}.nc"


def events(samples: int, years: Sequence[int] = (2013, 2014, 2015), *, seed: int = 0) -> Iterator[Event]:
    """Yield `samples` events, which take turns through `years`. Every fourth round of years is for testing."""
    rng = np.random.default_rng(seed)
    for number in range(samples):
        year = years[number % len(years)]
        kind = "test" if number // len(years) % _TEST_EVERY == _TEST_EVERY - 1 else "train"
        tornado = rng.random() < _TORNADO_SHARE
        category = "TOR" if tornado else ("WRN" if rng.random() < 0.3 else "NUL")
        ends = datetime(year, 4, 1, tzinfo=UTC) + timedelta(seconds=int(rng.integers(0, 180 * 86_400)))
        yield Event(number, kind, category, int(rng.integers(0, 4)) if tornado else -1, ends)


def make(root: str | Path, samples: int, years: Sequence[int] = (2013, 2014, 2015), *, seed: int = 0) -> list[Event]:
    """Write `samples` netCDF files and `catalog.csv` below `root`, in the layout of the extracted data set."""
    made = list(events(samples, years, seed=seed))
    for event in made:
        write_netcdf(Path(root) / event.filename, event, seed=seed)
    write_catalog(Path(root), made)
    return made


def write_catalog(root: Path, made: Sequence[Event]) -> None:
    """Write `catalog.csv` for events."""
    with (root / "catalog.csv").open("w", newline="", encoding="utf-8") as file:
        rows: Any = csv.DictWriter(file, _COLUMNS)
        rows.writeheader()
        for event in made:
            times = {"start_time": f"{event.starts:%Y-%m-%d %H:%M:%S}", "end_time": f"{event.ends:%Y-%m-%d %H:%M:%S}"}
            columns = {"event_id": event.number, "type": event.kind, "radar": "KXYZ", "filename": event.filename}
            rows.writerow({**columns, **times, "category": event.category, "ef_number": event.ef_number})


def write_netcdf(path: Path, event: Event, *, seed: int = 0) -> None:
    """Write a sample as a netCDF file, compressed as by xarray, with one chunk for each variable as in netCDF-C."""
    try:
        import xarray as xr
    except ImportError as error:
        raise MissingDependency("xarray", extra="tornet") from error
    rng = np.random.default_rng((seed, event.number))
    dimensions = ("time", "azimuth", "range", "sweep")
    radar = _radar_variables(event, rng)
    variables: dict[str, Any] = {name: (dimensions, values) for name, values in radar.items()}
    first_azimuth, first_range = float(rng.uniform(0, 300)), float(rng.uniform(5_000, 100_000))
    variables["frame_labels"] = ("time", _labels(event))
    variables["azimuth_limits"] = ("limits", np.array([first_azimuth, first_azimuth + 60], "f4"))
    variables["range_limits"] = ("limits", np.array([first_range, first_range + 60_000], "f4"))
    times = [(event.starts + frame * _FRAME_INTERVAL).replace(tzinfo=None) for frame in range(FRAMES)]
    dataset = xr.Dataset(variables, {"time": np.array(times, "datetime64[ns]")}, _attributes(event))
    path.parent.mkdir(parents=True, exist_ok=True)
    compression = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": RADAR_SHAPE}
    encoding = dict.fromkeys(VARIABLES, compression)
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def _attributes(event: Event) -> dict[str, Any]:
    attributes = {"category": event.category, "event_id": event.number, "ef_number": event.ef_number, "radar": "KXYZ"}
    if event.category != "TOR":
        return attributes
    begin = event.ends - _FRAME_INTERVAL
    end = event.ends + _FRAME_INTERVAL
    times = {"tornado_start_time": f"{begin:%Y-%m-%d %H:%M:%S}", "tornado_end_time": f"{end:%Y-%m-%d %H:%M:%S}"}
    return {**attributes, **times}


def _labels(event: Event) -> Any:
    """Return the labels of the frames: a tornado is in the last two frames."""
    return (np.arange(FRAMES) >= FRAMES - 2).astype("uint8") * np.uint8(event.category == "TOR")


def _radar_variables(event: Event, rng: Any) -> dict[str, Any]:
    echo = _smooth(rng)
    bump, sides = _couplet(rng) if event.category == "TOR" else (0.0, 0.0)
    gaps = echo + 4 * bump < _GAP  # no tornado without an echo
    variables: dict[str, Any] = {}
    for name in RADAR:
        values = _MEAN[name] + _SPREAD[name] * (_smooth(rng) + _TEXTURE * rng.standard_normal(RADAR_SHAPE))
        values += bump * (25 if name == "DBZ" else 60 * sides if name == "VEL" else 0)
        quantised = (np.round(values / _QUANTA[name]) * _QUANTA[name]).astype("f4")
        quantised[gaps] = np.nan
        variables[name] = quantised
    folded = _smooth(rng) > 1.5
    variables["range_folded_mask"] = (folded & gaps).astype("f4")
    return variables


def _smooth(rng: Any) -> Any:
    """Return a smooth array of unit spread that drifts from frame to frame and differs little between sweeps."""
    _, azimuths, ranges, sweeps = RADAR_SHAPE
    across, along = _interpolation(azimuths, _KNOTS[0]), _interpolation(ranges, _KNOTS[1])
    knots = rng.standard_normal(_KNOTS)
    frames = []
    for _ in range(FRAMES):
        knots = 0.95 * knots + 0.3 * rng.standard_normal(_KNOTS)
        layers = [across @ (knots + 0.2 * rng.standard_normal(_KNOTS)) @ along.T for _ in range(sweeps)]
        frames.append(np.stack(layers, axis=-1))
    return np.stack(frames)


def _interpolation(gates: int, knots: int) -> Any:
    """Return the matrix that interpolates `gates` values linearly between `knots` values."""
    positions = np.linspace(0, knots - 1, gates)
    return np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(knots)))


def _couplet(rng: Any) -> tuple[Any, Any]:
    """Return a strong echo that grows until the last frame, and the direction of the wind on its two sides."""
    _, azimuths, ranges, _ = RADAR_SHAPE
    azimuth = (np.arange(azimuths) - rng.uniform(40, 80))[:, None]
    distance = (np.arange(ranges) - rng.uniform(80, 160))[None, :]
    bump = np.exp(-(azimuth**2 + distance**2) / 128)
    growth = np.linspace(0.4, 1, FRAMES)[:, None, None, None]
    return growth * bump[None, :, :, None], np.clip(azimuth / 4, -1, 1)[None, :, :, None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.tornet.small_data", description=__doc__)
    parser.add_argument("out", type=Path, help="where catalog.csv, train/ and test/ go (TORNET_ROOT)")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--years", type=int, nargs="+", default=[2013, 2014, 2015])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--shards", metavar="BUCKET", help="put the samples as tar shards there, too: a URL or a folder"
    )
    parser.add_argument("--shards-per-split", type=int, default=10)
    options = parser.parse_args(arguments)
    made = make(options.out, options.samples, options.years, seed=options.seed)
    counts = ", ".join(f"{sum(event.category == name for event in made)} {name}" for name in CATEGORIES)
    print(f"{options.out}: {len(made)} samples ({counts})")
    if options.shards:
        from ais_tar2tf.tornet.shards import pack

        for url in pack(options.out, options.shards, shards=options.shards_per_split):
            print(url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
