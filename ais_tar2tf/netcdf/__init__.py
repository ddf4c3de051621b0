"""netCDF-4, which is HDF5, out of bytes or a file: arrays and attributes as xarray would give them.

A file is data: links to other files, external storage and virtual datasets, which would read what the file names,
are refused, and so is what states more bytes than `limit`. h5py is imported when something here is called. This is
the only way in which these files are read here: `arrays` and the decoders call it.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ais_tar2tf.allocation import LARGE_FIELDS, keep_freed
from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.netcdf import _chunks
from ais_tar2tf.options import Limits

__all__ = ["NetCDF", "read", "size_of"]

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
) -> NetCDF:
    """The variables `names` (all by default) and the attributes of a netCDF-4 or HDF5 file: bytes, or a path."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency("h5py", extra="hdf5") from error
    keep_freed(LARGE_FIELDS)
    _check_magic(source)
    try:
        with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source), "r") as file:
            found = dict(_datasets(file)) if names is None else {name: _named(file, name) for name in names}
            _check_size(found, limit)
            variables = {name: _variable(dataset) for name, dataset in found.items()}
            return NetCDF(variables, _attributes(file))
    except SchemaError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise SchemaError(f"no netCDF-4 or HDF5 file that can be read here: {error}") from error


def _check_magic(source: bytes | str | os.PathLike[str]) -> None:
    if not isinstance(source, bytes):
        with open(source, "rb") as file:  # noqa: PTH123  # a path of any kind
            source = file.read(len(_MAGIC))
    if source.startswith(_CLASSIC):
        raise SchemaError("a classic netCDF-3 file is not read here: write it as netCDF-4 (nccopy -k nc4)")
    if not source.startswith(_MAGIC):
        raise SchemaError(f"no netCDF-4 or HDF5 file: it begins with {source[:8]!r}")


def _check_size(datasets: Mapping[str, Any], limit: int) -> None:
    total = sum(size_of(dataset.shape, dataset.dtype) for dataset in datasets.values())
    if total > limit:
        raise SchemaError(f"variables of {total:,} bytes pass the limit of {limit:,}, Limits.member_bytes")


def _datasets(group: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    import h5py

    if depth > _MOST_GROUPS:
        raise SchemaError(f"groups nest deeper than {_MOST_GROUPS} levels")
    for name in group:
        value = _linked(group, name)
        if isinstance(value, h5py.Group):
            yield from _datasets(value, f"{prefix}{name}/", depth + 1)
        elif isinstance(value, h5py.Dataset) and value.shape is not None and not _is_bare_dimension(value):
            yield f"{prefix}{name}", value


def _named(file: Any, name: str) -> Any:
    found = file
    for part in name.split("/"):
        if part not in found:
            raise SchemaError(f"variable {name!r} is missing")
        found = _linked(found, part)
    return found


def _linked(group: Any, name: str) -> Any:
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise SchemaError(f"{name!r} is a link to another place, which is not followed")
    return group[name]


def _is_bare_dimension(dataset: Any) -> bool:
    name = dataset.attrs.get("NAME") if "NAME" in dataset.attrs else None
    return isinstance(name, bytes | np.bytes_) and bytes(name).startswith(_BARE_DIMENSION)


def _attributes(holder: Any) -> dict[str, Any]:
    return {name: _plain(holder.attrs[name]) for name in holder.attrs if name not in _BOOKKEEPING}


def _plain(value: Any) -> Any:
    """Text as str, and arrays of one number as that number, as netCDF's readers have it."""
    if isinstance(value, np.ndarray) and value.shape == (1,):
        value = value[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes | np.bytes_) else value


def _variable(dataset: Any) -> Any:
    if dataset.is_virtual or dataset.external:
        raise SchemaError(f"{dataset.name!r} keeps its data in another file, which is not opened")
    values = _chunks.read(dataset)
    held = dataset.attrs
    said = {name: _plain(held[name]) for name in _MEANING if name in held}
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
