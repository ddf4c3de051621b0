"""Arrays out of members' bytes: `.npy`, `.npz`, and through `netcdf` netCDF-4 and HDF5. Nothing is unpickled.

`decode_array` goes by a field's extension; the decoders call the others.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ais_tar2tf import netcdf
from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.options import Limits

__all__ = ["DECODERS", "decode_array", "decode_hdf5", "decode_npy", "decode_npz", "decode_record"]


def __dir__() -> list[str]:
    return sorted(__all__)


_LIMITS = Limits()
_ENTRY = b"PK\x01\x02"  # that each entry of a zip's directory begins with


def decode_npy(data: bytes, limit: int = _LIMITS.member_bytes) -> Any:
    """The array of a `.npy` file; one of Python objects is refused, since only unpickling would read it.

    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> decode_npy(file.getvalue())
    array([0, 1, 2])
    """
    try:
        _check_header(data, limit)
        return np.load(io.BytesIO(data), allow_pickle=False)
    except SchemaError:
        raise
    except Exception as error:  # numpy lets errors of Python's parser and tokenizer through
        raise SchemaError(f"no .npy file that can be read here: {error}") from error


def _check_header(data: bytes, limit: int) -> None:
    """What an array is said to be is plain values that fit into its file, and into `limit`."""
    header = io.BytesIO(data)
    first_version = np.lib.format.read_magic(header) == (1, 0)
    read: Any = np.lib.format.read_array_header_1_0 if first_version else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(header)
    if dtype.hasobject:
        raise SchemaError("no .npy file that can be read here: it holds Python objects, which would be unpickled")
    size = netcdf.size_of(shape, dtype)
    if size > len(data) - header.tell():
        raise SchemaError(
            f"no .npy file that can be read here: it is cut, {dtype} {shape} takes more than its {len(data):,} bytes"
        )
    if size > limit:
        raise SchemaError(f"an array of {size:,} bytes passes the limit of {limit:,}, Limits.member_bytes")


def decode_npz(data: bytes, limit: int = _LIMITS.member_bytes) -> dict[str, Any]:
    """The arrays of a `.npz` file by name; `limit` bounds what they decompress to, in bytes."""
    if data.count(_ENTRY) > _LIMITS.fields:  # zipfile makes an object of each, before it tells how many there are
        raise SchemaError(f"a .npz file of over {_LIMITS.fields:,} arrays passes Limits.fields")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_total(archive, min(limit, _LIMITS.ratio * len(data)))
            members = archive.infolist()
            return {info.filename.removesuffix(".npy"): decode_npy(_read(archive, info), limit) for info in members}
    except SchemaError:
        raise
    except Exception as error:  # zipfile lets errors of zlib, struct and codecs through
        raise SchemaError(f"no .npz file that can be read here: {error}") from error


def decode_hdf5(data: bytes, limit: int = _LIMITS.member_bytes) -> dict[str, Any]:
    """The variables of a netCDF-4 or HDF5 file by name, gaps as NaN, packed values unpacked, times as datetime64."""
    return netcdf.read(data, limit=limit).variables


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, never more than it states: `ZipFile.read` would inflate all, and leave out the rest."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SchemaError(f"no .npz file that can be read here: {info.filename!r} is neither stored nor deflated")
    with archive.open(info) as member:
        return member.read(info.file_size)


def _check_total(archive: zipfile.ZipFile, most: int) -> None:
    total = sum(info.file_size for info in archive.infolist())
    if total > most:
        raise SchemaError(
            f"a .npz file of {total:,} bytes, when decompressed, passes Limits.member_bytes or Limits.ratio"
        )


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "npy": decode_npy,
    "npz": decode_npz,
    "nc": decode_hdf5,
    "nc4": decode_hdf5,
    "h5": decode_hdf5,
    "hdf5": decode_hdf5,
}
"""By a field's extension, in lower case."""


def decode_array(field: str, data: bytes) -> Any:
    """What a field's bytes hold, by its extension: `seg.npy` is a `.npy` file."""
    extension = field.rpartition(".")[2].lower()
    if extension not in DECODERS:
        raise SchemaError(f"{field!r} is no file of arrays; read here are: {', '.join(DECODERS)}")
    return DECODERS[extension](data)


def decode_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose fields of arrays are decoded; the others, and its names, stay as they are."""
    decoded: dict[str, Any] = {}
    for name, value in record.items():
        known = isinstance(value, bytes) and name.rpartition(".")[2].lower() in DECODERS
        try:
            decoded[name] = decode_array(name, value) if known else value
        except SchemaError as error:
            shard, key = record.get("__shard__", ""), record.get("__key__", "")
            raise MappingError(f"field {name!r}: {error}", shard=shard, key=key) from error
    return decoded
