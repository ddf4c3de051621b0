"""Reads netCDF-4 and other HDF5 files. The HDF5 library calls their variables *datasets*.

Missing values, packed values and times are converted as in xarray. This module must not trust a file. It refuses
links to other files, external storage and virtual datasets, because the HDF5 library would open the files that they
name. It also refuses a file whose values take more bytes than `limit`. h5py is imported on the first call.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ais_tar2tf.base.allocation import LARGE_FIELDS, keep_freed
from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.options import Hdf5, Limits
from ais_tar2tf.values.hdf5 import chunks as _chunks
from ais_tar2tf.values.hdf5.budget import Budget
from ais_tar2tf.values.hdf5.helper_pool import HelperPool
from ais_tar2tf.values.hdf5.times import TimeUnits

h5py: Any = LazyModule("h5py")

__all__ = ["NetCDF", "read", "read_in_process"]

_CHOICES = ("isolated", "in-process")  # values of the environment variable AIS_TAR2TF_HDF5; default first

_MAGIC = b"\x89HDF\r\n\x1a\n"
_NETCDF3_MAGIC = b"CDF"
_DIMENSION_NAME = b"This is a netCDF dimension but not a netCDF variable"
_BOOKKEEPING = frozenset(  # attributes that the netCDF and HDF5 libraries write for themselves
    {
        "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties",
        "_nc3_strict",
    }
)  # fmt: skip
_MAX_DEPTH = 64  # levels of nested groups; real files have fewer
_MAX_OBJECTS = 20_000  # groups and variables; visiting 20,000 takes a second


@dataclass(frozen=True)
class NetCDF:
    """The content of a file: its variables by their paths (`group/name`), and the attributes of its root group."""

    variables: dict[str, Any]
    attributes: dict[str, Any]


def read(
    source: bytes | str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    limit: int = Limits().member_bytes,
    options: Hdf5 = Hdf5(),  # noqa: B008  # frozen
) -> NetCDF:
    """Return the variables and the attributes of a netCDF-4 or HDF5 file.

    A crafted file can make the HDF5 library crash or hang. Therefore a helper process reads the file, for at most
    `options.seconds`. The calling process reads the file itself only if `options` or the environment variable
    AIS_TAR2TF_HDF5 says so.

    Args:
        source: The bytes of the file, or its path.
        names: The paths of the variables to read; None reads all variables.
        limit: The largest size of all values together, in bytes.
        options: Says whether a helper process reads the file, and how long this process may take.

    Raises:
        SchemaError: The file cannot be read, its values are too large, the library crashed, or reading took too long.
        MissingDependency: h5py is not installed.
    """
    if not _is_isolated(options):
        return read_in_process(source, names, limit=limit)
    keep_freed(LARGE_FIELDS)
    _check_magic(source)
    helpers = _pool()
    path = source if isinstance(source, bytes) else os.path.abspath(os.fspath(source))  # noqa: PTH100
    return NetCDF(*helpers.read(path, names, limit, options))


def _is_isolated(options: Hdf5) -> bool:
    """Return whether a helper process reads files. If the options leave this open, AIS_TAR2TF_HDF5 decides."""
    if options.isolate is not None:
        return options.isolate
    chosen = os.environ.get("AIS_TAR2TF_HDF5", "") or _CHOICES[0]
    if chosen not in _CHOICES:
        raise SchemaError(f"AIS_TAR2TF_HDF5 is one of {', '.join(_CHOICES)}, not {chosen!r}")
    return chosen == _CHOICES[0]


@functools.cache
def _pool() -> HelperPool:
    if importlib.util.find_spec("h5py") is None:
        raise MissingDependency("h5py", extra="hdf5")
    return HelperPool()


def read_in_process(
    source: bytes | str | os.PathLike[str],
    names: Collection[str] | None = None,
    *,
    limit: int = Limits().member_bytes,
    new_array: _chunks.ArrayFactory = np.empty,
) -> NetCDF:
    """Read a file as `read` does, but in this process. `new_array` allocates the arrays of large variables."""
    try:
        importlib.import_module("h5py")
    except ImportError as error:
        raise MissingDependency("h5py", extra="hdf5") from error
    keep_freed(LARGE_FIELDS)
    _check_magic(source)
    try:
        with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source), "r") as file:
            return _read(file, names, limit, new_array)
    except SchemaError:
        raise
    except Exception as error:  # a damaged file makes h5py raise errors of any type
        raise SchemaError(f"no netCDF-4 or HDF5 file that can be read here: {error}") from error


def _read(file: Any, names: Collection[str] | None, limit: int, new_array: _chunks.ArrayFactory) -> NetCDF:
    size = file.id.get_filesize()
    budget = Budget(limit, size)
    datasets = dict(_datasets(file, budget)) if names is None else {name: _named(file, name) for name in names}
    budget.check(datasets)
    variables = {name: _variable(dataset, budget, size, new_array) for name, dataset in datasets.items()}
    return NetCDF(variables, _attributes(file, budget))


def _check_magic(source: bytes | str | os.PathLike[str]) -> None:
    """Raise SchemaError unless a file begins with the magic bytes of HDF5."""
    if not isinstance(source, bytes):
        with open(source, "rb") as file:  # noqa: PTH123  # a str, bytes or os.PathLike path
            source = file.read(len(_MAGIC))
    if source.startswith(_NETCDF3_MAGIC):
        raise SchemaError("a classic netCDF-3 file is not read here: write it as netCDF-4 (nccopy -k nc4)")
    if not source.startswith(_MAGIC):
        raise SchemaError(f"no netCDF-4 or HDF5 file: it begins with {source[:8]!r}")


def _datasets(file: Any, budget: Budget) -> Iterator[tuple[str, Any]]:
    """Yield the path of every variable, and its dataset.

    The depth of groups and the number of objects are bounded, because hard links can give one group many paths, even
    endlessly many.
    """
    stack, count = [("", file, 0)], 0
    while stack:
        prefix, group, depth = stack.pop()
        if depth > _MAX_DEPTH:
            raise SchemaError(f"groups nest deeper than {_MAX_DEPTH} levels")
        subgroups: list[tuple[str, Any, int]] = []
        for name in group:
            count += 1
            if count > _MAX_OBJECTS:
                raise SchemaError(f"there are over {_MAX_OBJECTS:,} groups and variables")
            value = _child(group, name)
            if isinstance(value, h5py.Group):
                subgroups.append((f"{prefix}{name}/", value, depth + 1))
            elif _is_variable(value) and not _is_bare_dimension(value, budget):
                yield f"{prefix}{name}", value
        stack += reversed(subgroups)


def _named(file: Any, name: str) -> Any:
    """Return the dataset of the variable with the path `name`, such as `group/name`."""
    node = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group) or part not in node:
            raise SchemaError(f"variable {name!r} is missing")
        node = _child(node, part)
    if not _is_variable(node):
        raise SchemaError(f"{name!r} is no variable with values")
    return node


def _is_variable(node: Any) -> bool:
    """Return whether an HDF5 object is a dataset with values."""
    return isinstance(node, h5py.Dataset) and node.shape is not None


def _child(group: Any, name: str) -> Any:
    """Return a member of a group; raise SchemaError if it is a soft or an external link."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise SchemaError(f"{name!r} is a link to another place, which is not followed")
    return group[name]


def _is_bare_dimension(dataset: Any, budget: Budget) -> bool:
    """Return whether a dataset only declares a dimension of a netCDF file, and is no variable."""
    name = budget.read_attribute(dataset, "NAME") if "NAME" in dataset.attrs else None
    return isinstance(name, bytes | np.bytes_) and bytes(name).startswith(_DIMENSION_NAME)


def _attributes(holder: Any, budget: Budget) -> dict[str, Any]:
    return {name: _plain(budget.read_attribute(holder, name)) for name in holder.attrs if name not in _BOOKKEEPING}


def _plain(value: Any) -> Any:
    """Turn bytes into a str, and an array of one value into this value, as other netCDF readers do."""
    if isinstance(value, np.ndarray) and value.shape == (1,):
        value = value[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes | np.bytes_) else value


def _variable(dataset: Any, budget: Budget, file_bytes: int, new_array: _chunks.ArrayFactory) -> Any:
    if dataset.is_virtual or dataset.external:
        raise SchemaError(f"{dataset.name!r} keeps its data in another file, which is not opened")
    values = budget.read_objects(dataset) if dataset.dtype.hasobject else _chunks.read(dataset, file_bytes, new_array)
    names = [name for name in _CONVERSIONS if name in dataset.attrs]
    attributes = {name: _plain(budget.read_attribute(dataset, name)) for name in names}
    return _converted(values, attributes) if attributes else values


# The attributes of a variable that change its values.
_CONVERSIONS = ("_Unsigned", "_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar")


def _converted(values: Any, attributes: dict[str, Any]) -> Any:
    """Convert stored values by the attributes of their variable: missing values, packed values and times."""
    values, attributes = _with_sign(values, attributes)
    is_missing = _missing(values, attributes)
    packing = {name: attributes[name] for name in ("scale_factor", "add_offset") if name in attributes}
    time_units = TimeUnits.parse(attributes.get("units"), attributes.get("calendar", "standard"))
    if time_units is not None and values.dtype.kind in "iuf":
        return time_units.convert(_unpacked(values, packing) if packing else values, is_missing)
    if is_missing is None and not packing:
        return values
    unpacked = _unpacked(values, packing)
    if is_missing is not None:
        unpacked[is_missing] = np.nan
    return unpacked


def _with_sign(values: Any, attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the values and attributes of a variable, its integers read as signed or unsigned, as `_Unsigned` says.

    netCDF-3 and some writers of netCDF-4 have no unsigned types, and store such numbers as signed ones.
    """
    kind = {"true": "u", "false": "i"}.get(str(attributes.get("_Unsigned")))
    if kind is None or values.dtype.kind not in "iu" or values.dtype.kind == kind:
        return values, attributes
    stored, meant = values.dtype, np.dtype(f"{values.dtype.byteorder}{kind}{values.dtype.itemsize}")
    missing = {name: np.asarray(attributes[name]) for name in ("_FillValue", "missing_value") if name in attributes}
    whole = {name: each.astype(stored).view(meant) for name, each in missing.items() if each.dtype.kind in "iu"}
    return values.view(meant), {**attributes, **whole}


def _missing(values: Any, attributes: dict[str, Any]) -> Any:
    """Return which stored values mean that a value is missing; None if no attribute says so. NaN stays NaN anyway."""
    stated = [np.ravel(attributes[name]) for name in ("_FillValue", "missing_value") if name in attributes]
    numbers = [each for each in stated if each.dtype.kind in "iuf" and not np.isnan(each).all()]
    if values.dtype.kind not in "iuf" or not numbers:
        return None
    return functools.reduce(np.logical_or, (np.isin(values, each) for each in numbers))


def _unpacked(values: Any, packing: dict[str, Any]) -> Any:
    """Return stored values as floats, with their scale and offset applied."""
    dtype = _unpacked_dtype(values.dtype, packing)
    unpacked = values.astype(dtype)
    if packing:
        unpacked = unpacked * dtype.type(packing.get("scale_factor", 1)) + dtype.type(packing.get("add_offset", 0))
    return np.asarray(unpacked)  # NumPy makes a scalar of the product of an array without dimensions


def _unpacked_dtype(dtype: Any, packing: dict[str, Any]) -> Any:
    """Return a float type that is precise enough for stored values of the type `dtype`, and for their packing.

    `packing` has the scale and the offset of packed values, and is empty if the values are not packed.
    """
    if packing:
        numbers = [np.asarray(number).dtype for number in packing.values()]
        return np.result_type(*numbers, np.float32) if dtype.itemsize <= 2 or dtype.kind == "f" else np.dtype("f8")
    if dtype.kind == "f":
        return dtype
    return np.dtype("f4") if dtype.itemsize <= 2 else np.dtype("f8")
