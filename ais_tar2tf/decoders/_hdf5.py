"""HDF5 and netCDF-4 → arrays by path. What leads out of the file (links, external and virtual data) is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.options import Limits

__all__ = ["arrays_of"]

_LIMITS = Limits()


def arrays_of(data: bytes) -> dict[str, Any]:
    """Every data set of the file, by its path, and the file's attributes as `@name`."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency("h5py", extra="hdf5") from error
    if data[:3] == b"CDF":
        raise ValueError("this is classic netCDF; netCDF-4 is read (nccopy -k nc4 makes it)")
    found: dict[str, Any] = {}
    size = 0
    with h5py.File(io.BytesIO(data), "r") as file:
        for path, item in _datasets(h5py, file, ""):
            size += item.size * item.dtype.itemsize
            if size > _LIMITS.member_bytes:
                raise ValueError("its arrays have more bytes than Limits.member_bytes")
            found[path] = item[()]
        for name, value in file.attrs.items():
            if not name.startswith("_NC"):
                found[f"@{name}"] = value
    return found


def _datasets(h5py: Any, group: Any, above: str) -> Iterator[tuple[str, Any]]:
    for name in group:
        path = f"{above}{name}"
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{path!r} is a link, which may lead out of the file")  # noqa: TRY004  # it is the data's
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _datasets(h5py, item, f"{path}/")
        elif isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise ValueError(f"the data of {path!r} are in another file")
            if item.shape is not None:
                yield path, item
