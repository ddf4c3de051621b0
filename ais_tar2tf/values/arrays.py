"""Decoders of files that hold arrays: `.npy`, `.npz`, netCDF-4 and HDF5.

`decode_array` selects the decoder by the extension of a field. This module must not unpickle, so it refuses a file
that holds Python objects. Before memory is allocated, the module checks the sizes that the file states.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.values import hdf5
from ais_tar2tf.values.schema import extension_of

__all__ = ["DECODERS", "decode_array", "decode_hdf5", "decode_npy", "decode_npz", "decode_record"]


def __dir__() -> list[str]:
    return sorted(__all__)


_LIMITS = Limits()
_ENTRY_SIGNATURE = b"PK\x01\x02"  # the first bytes of each entry of a zip's directory


def decode_npy(data: bytes, limit: int = _LIMITS.member_bytes) -> Any:
    """Decode a `.npy` file into an array.

    Args:
        data: The bytes of the file.
        limit: The largest size of the array, in bytes.

    Raises:
        SchemaError: The file is damaged, holds Python objects, or exceeds the limit.

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
    except Exception as error:  # numpy also raises errors of Python's parser and tokenizer
        raise SchemaError(f"no .npy file that can be read here: {error}") from error


def _check_header(data: bytes, limit: int) -> None:
    """Raise SchemaError if a `.npy` file holds Python objects, is cut, or states an array larger than `limit`."""
    header = io.BytesIO(data)
    first_version = np.lib.format.read_magic(header) == (1, 0)
    read: Any = np.lib.format.read_array_header_1_0 if first_version else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(header)
    if dtype.hasobject:
        raise SchemaError("no .npy file that can be read here: it holds Python objects, which would be unpickled")
    size = math.prod(shape) * dtype.itemsize
    if size > len(data) - header.tell():
        raise SchemaError(
            f"no .npy file that can be read here: it is cut, {dtype} {shape} takes more than its {len(data):,} bytes"
        )
    if size > limit:
        raise SchemaError(f"an array of {size:,} bytes exceeds the limit of {limit:,} bytes, Limits.member_bytes")


def decode_npz(data: bytes, limit: int = _LIMITS.member_bytes) -> dict[str, Any]:
    """Decode a `.npz` file into a dict of its arrays by name.

    Args:
        data: The bytes of the file.
        limit: The largest size of all decompressed arrays together, in bytes.

    Raises:
        SchemaError: The file is damaged, holds Python objects, or exceeds `limit`, `Limits.ratio` or
            `Limits.fields`.
    """
    if data.count(_ENTRY_SIGNATURE) > _LIMITS.fields:  # zipfile makes an object for each entry
        raise SchemaError(f"a .npz file of more than {_LIMITS.fields:,} arrays exceeds Limits.fields")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_total(archive, min(limit, _LIMITS.ratio * len(data)))
            entries = archive.infolist()
            return {
                info.filename.removesuffix(".npy"): decode_npy(_read_entry(archive, info), limit) for info in entries
            }
    except SchemaError:
        raise
    except Exception as error:  # zipfile also raises errors of zlib, struct and codecs
        raise SchemaError(f"no .npz file that can be read here: {error}") from error


def decode_hdf5(data: bytes, limit: int = _LIMITS.member_bytes) -> dict[str, Any]:
    """Decode a netCDF-4 or HDF5 file into a dict of its variables by name.

    Missing values become NaN, packed values are unpacked, and times become datetime64.

    Args:
        data: The bytes of the file.
        limit: The largest size of all variables together, in bytes.

    Raises:
        SchemaError: The file is damaged, refers to another file, or exceeds the limit.
        MissingDependency: h5py is not installed.
    """
    return hdf5.read(data, limit=limit).variables


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Read at most as many bytes of a zip's entry as the zip's directory states. `ZipFile.read` has no such bound."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SchemaError(f"no .npz file that can be read here: {info.filename!r} is neither stored nor deflated")
    with archive.open(info) as entry:
        return entry.read(info.file_size)


def _check_total(archive: zipfile.ZipFile, limit: int) -> None:
    total = sum(info.file_size for info in archive.infolist())
    if total > limit:
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
"""Decoders by the extension of a field, in lower case."""


def decode_array(field: str, data: bytes) -> Any:
    """Decode a file that holds arrays; the extension of its field selects the decoder.

    Args:
        field: The name of the field, such as `seg.npy`.
        data: The bytes of the file.

    Returns:
        The array of a `.npy` file. For the other formats, a dict of arrays by name.

    Raises:
        SchemaError: `DECODERS` has no decoder for the extension, or the file cannot be decoded.
        MissingDependency: The file needs h5py, which is not installed.
    """
    extension = extension_of(field)
    if extension not in DECODERS:
        raise SchemaError(f"{field!r} is no file of arrays; read here are: {', '.join(DECODERS)}")
    return DECODERS[extension](data)


def decode_record(record: dict[str, Any]) -> dict[str, Any]:
    """Decode the arrays of a record.

    Args:
        record: A record whose fields are bytes.

    Returns:
        A copy in which each field with an extension of `DECODERS` is decoded. All other entries are unchanged.

    Raises:
        MappingError: A field cannot be decoded. The error names the record and the field.
        MissingDependency: A field needs h5py, which is not installed.
    """
    decoded: dict[str, Any] = {}
    for name, value in record.items():
        is_encoded = isinstance(value, bytes) and extension_of(name) in DECODERS
        try:
            decoded[name] = decode_array(name, value) if is_encoded else value
        except SchemaError as error:
            shard, key = record.get("__shard__", ""), record.get("__key__", "")
            raise MappingError(f"field {name!r}: {error}", shard=shard, key=key) from error
    return decoded
