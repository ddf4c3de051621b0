"""netCDF-4, which is HDF5, out of bytes or a file: arrays and attributes as xarray would give them.

A file is data: links to other files, external storage and virtual datasets, which would read what the file names,
are refused, and so is what states more bytes than `limit`. h5py is imported when something here is called. This is
the only way in which these files are read here: `arrays` and the decoders call it.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import math
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ais_tar2tf.allocation import LARGE_FIELDS, keep_freed
from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.netcdf import _chunks
from ais_tar2tf.netcdf._budget import Budget
from ais_tar2tf.netcdf._helper import Helpers
from ais_tar2tf.options import Hdf5, Limits

__all__ = ["NetCDF", "read", "read_here", "size_of"]

_CHOICES = ("isolated", "in-process")  # the first one is the default

_MAGIC = b"\x89HDF\r\n\x1a\n"
_CLASSIC = b"CDF"
_BARE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
_BOOKKEEPING = frozenset(
    {
        "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties",
        "_nc3_strict",
    }
)  # fmt: skip
_UNITS = {"day": "D", "hour": "h", "minute": "m", "second": "s", "millisecond": "ms", "microsecond": "us"}
_SINCE = re.compile(r"(day|hour|minute|second|millisecond|microsecond|nanosecond)s? since (.+)")
_CALENDARS = frozenset({"standard", "gregorian", "proleptic_gregorian"})
_MOST_GROUPS = 64  # levels of nesting; what nests deeper is no data that anybody wrote
_MOST_OBJECTS = 20_000  # groups and variables that are looked at: a second of work


@dataclass(frozen=True)
class NetCDF:
    """What a file holds: variables by name (`group/name` below the root) and the root's attributes."""

    variables: dict[str, Any]
    attributes: dict[str, Any]


def size_of(shape: Collection[int], dtype: Any) -> int:
    """The bytes of an array."""
    return math.prod(shape) * dtype.itemsize


def read(
    source: bytes | str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    limit: int = Limits().member_bytes,
    how: Hdf5 = Hdf5(),  # noqa: B008  # frozen
) -> NetCDF:
    """Return the variables `names` (by default all) and the attributes of a netCDF-4 or HDF5 file.

    HDF5's library takes its files for sound: one that was made for it can crash it, or hold it up for ever. So a
    helper process reads the file, within `how.seconds`, unless `how` or AIS_TAR2TF_HDF5 says that files are trusted.

    Args:
        source: The file's bytes, or its path.
        names: Paths of variables in the file.
        limit: The bytes that the variables and attributes may take.
        how: Whether a helper process reads the file, and how long it may take.

    Raises:
        SchemaError: The file cannot be read, is too large, crashed the library, or took too long.
    """
    if not _is_isolated(how):
        return read_here(source, names, limit=limit)
    keep_freed(LARGE_FIELDS)
    _check_magic(source)
    helpers = _helpers()
    path = source if isinstance(source, bytes) else os.path.abspath(os.fspath(source))  # noqa: PTH100
    return NetCDF(*helpers.read(path, names, limit, how))


def _is_isolated(how: Hdf5) -> bool:
    if how.isolate is not None:
        return how.isolate
    chosen = os.environ.get("AIS_TAR2TF_HDF5", "") or _CHOICES[0]
    if chosen not in _CHOICES:
        raise SchemaError(f"AIS_TAR2TF_HDF5 is one of {', '.join(_CHOICES)}, not {chosen!r}")
    return chosen == _CHOICES[0]


@functools.cache
def _helpers() -> Helpers:
    if importlib.util.find_spec("h5py") is None:
        raise MissingDependency("h5py", extra="hdf5")
    return Helpers()


def read_here(
    source: bytes | str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    limit: int = Limits().member_bytes,
    empty: _chunks.Empty = np.empty,
) -> NetCDF:
    """As `read`, in this process. `empty` makes the arrays of large variables."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency("h5py", extra="hdf5") from error
    keep_freed(LARGE_FIELDS)
    _check_magic(source)
    try:
        with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source), "r") as file:
            return _read(file, names, limit, empty)
    except SchemaError:
        raise
    except Exception as error:  # a file that is damaged makes h5py raise errors of any kind
        raise SchemaError(f"no netCDF-4 or HDF5 file that can be read here: {error}") from error


def _read(file: Any, names: Collection[str] | None, limit: int, empty: _chunks.Empty) -> NetCDF:
    size = file.id.get_filesize()
    budget = Budget(limit, size)
    found = dict(_datasets(file, budget)) if names is None else {name: _named(file, name) for name in names}
    budget.check(found)
    variables = {name: _variable(dataset, budget, size, empty) for name, dataset in found.items()}
    return NetCDF(variables, _attributes(file, budget))


def _check_magic(source: bytes | str | os.PathLike[str]) -> None:
    if not isinstance(source, bytes):
        with open(source, "rb") as file:  # noqa: PTH123  # a path of any kind
            source = file.read(len(_MAGIC))
    if source.startswith(_CLASSIC):
        raise SchemaError("a classic netCDF-3 file is not read here: write it as netCDF-4 (nccopy -k nc4)")
    if not source.startswith(_MAGIC):
        raise SchemaError(f"no netCDF-4 or HDF5 file: it begins with {source[:8]!r}")


def _datasets(file: Any, budget: Budget) -> Iterator[tuple[str, Any]]:
    """Return every variable by its path. Links may lead to one group on many paths, so the walk is bounded."""
    import h5py

    waiting, count = [("", file, 0)], 0
    while waiting:
        prefix, group, depth = waiting.pop()
        if depth > _MOST_GROUPS:
            raise SchemaError(f"groups nest deeper than {_MOST_GROUPS} levels")
        inner: list[tuple[str, Any, int]] = []
        for name in group:
            count += 1
            if count > _MOST_OBJECTS:
                raise SchemaError(f"there are over {_MOST_OBJECTS:,} groups and variables")
            value = _linked(group, name)
            if isinstance(value, h5py.Group):
                inner.append((f"{prefix}{name}/", value, depth + 1))
            elif _is_variable(value) and not _is_bare_dimension(value, budget):
                yield f"{prefix}{name}", value
        waiting += reversed(inner)


def _named(file: Any, name: str) -> Any:
    import h5py

    found = file
    for part in name.split("/"):
        if not isinstance(found, h5py.Group) or part not in found:
            raise SchemaError(f"variable {name!r} is missing")
        found = _linked(found, part)
    if not _is_variable(found):
        raise SchemaError(f"{name!r} is no variable with values")
    return found


def _is_variable(found: Any) -> bool:
    """Whether it is a dataset that is not empty, in the sense of having no shape."""
    import h5py

    return isinstance(found, h5py.Dataset) and found.shape is not None


def _linked(group: Any, name: str) -> Any:
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise SchemaError(f"{name!r} is a link to another place, which is not followed")
    return group[name]


def _is_bare_dimension(dataset: Any, budget: Budget) -> bool:
    name = budget.attribute(dataset, "NAME") if "NAME" in dataset.attrs else None
    return isinstance(name, bytes | np.bytes_) and bytes(name).startswith(_BARE_DIMENSION)


def _attributes(holder: Any, budget: Budget) -> dict[str, Any]:
    return {name: _plain(budget.attribute(holder, name)) for name in holder.attrs if name not in _BOOKKEEPING}


def _plain(value: Any) -> Any:
    """Text as str, and arrays of one number as that number, as netCDF's readers have it."""
    if isinstance(value, np.ndarray) and value.shape == (1,):
        value = value[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes | np.bytes_) else value


def _variable(dataset: Any, budget: Budget, file_bytes: int, empty: _chunks.Empty) -> Any:
    if dataset.is_virtual or dataset.external:
        raise SchemaError(f"{dataset.name!r} keeps its data in another file, which is not opened")
    values = budget.values(dataset) if dataset.dtype.hasobject else _chunks.read(dataset, file_bytes, empty)
    held = dataset.attrs
    said = {name: _plain(budget.attribute(dataset, name)) for name in _MEANING if name in held}
    return _meant(values, said) if said else values


_MEANING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar")


def _meant(values: Any, said: dict[str, Any]) -> Any:
    """Values as their attributes say: gaps, packing, times."""
    since = _SINCE.fullmatch(said["units"]) if isinstance(said.get("units"), str) else None
    if since is not None and said.get("calendar", "standard") in _CALENDARS:
        return _times(values, since)
    gaps = [said[name] for name in ("_FillValue", "missing_value") if name in said]
    missing = [gap for gap in gaps if values.dtype.kind in "iuf" and gap == gap]  # a gap that is NaN is one already
    packed = "scale_factor" in said or "add_offset" in said
    if not missing and not packed:
        return values
    dtype = _unpacked_dtype(values.dtype, packed, said)
    unpacked = values.astype(dtype)
    if packed:
        unpacked = unpacked * dtype.type(said.get("scale_factor", 1)) + dtype.type(said.get("add_offset", 0))
    for gap in missing:
        unpacked[values == gap] = np.nan
    return unpacked


def _unpacked_dtype(dtype: Any, packed: bool, said: dict[str, Any]) -> Any:
    """Floats as wide as needed to hold the integers, or as the scale is."""
    if dtype.kind == "f" and not packed:
        return dtype
    if packed:
        numbers = [np.asarray(said[name]).dtype for name in ("scale_factor", "add_offset") if name in said]
        return np.result_type(*numbers, np.float32) if dtype.itemsize <= 2 or dtype.kind == "f" else np.dtype("f8")
    return np.dtype("f4") if dtype.itemsize <= 2 else np.dtype("f8")


def _times(values: Any, since: re.Match[str]) -> Any:
    unit, begin = since.groups()
    start = np.datetime64(re.sub(r"\s*(UTC|Z)$", "", begin.strip()).replace(" ", "T"), "ns")
    nanoseconds = 1 if unit == "nanosecond" else int(np.timedelta64(1, _UNITS[unit]) / np.timedelta64(1, "ns"))
    if values.dtype.kind == "f":
        gaps = np.isnan(values)
        steps = np.round(np.where(gaps, 0, values) * nanoseconds).astype("i8")
        return np.where(gaps, np.datetime64("NaT"), start + steps.astype("m8[ns]"))
    return start + (values.astype("i8") * nanoseconds).astype("m8[ns]")
