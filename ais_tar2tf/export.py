"""Record files: TFRecord framing, written beside and renamed, so that no partial file ever has its name.

length  uint64, little-endian       payload  `length` bytes
crc     uint32, masked, of length   crc      uint32, masked, of payload
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path

import google_crc32c

from ais_tar2tf.errors import ExportError, Tar2TFError

__all__ = ["frame", "write_tfrecord"]

_MASK_DELTA = 0xA282EAD8
_BUFFER = 1 << 20  # bytes collected before a write


def _masked(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """One record of a TFRecord file."""
    length = struct.pack("<Q", len(payload))
    return b"".join((length, struct.pack("<I", _masked(length)), payload, struct.pack("<I", _masked(payload))))


def write_tfrecord(path: str | os.PathLike[str], payloads: Iterable[bytes]) -> int:
    """Write `payloads` as one TFRecord file, replacing it only when all is written; gives their number."""
    target = Path(path)
    written = 0
    try:
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ExportError(f"{target}: nothing can be written there ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb", buffering=_BUFFER) as file:
            for payload in payloads:
                file.write(frame(payload))
                written += 1
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(0o666 & ~_umask())
        Path(beside).replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        if isinstance(error, Tar2TFError):  # of the source: some of ours are OSErrors, too
            raise
        raise ExportError(f"{target}: writing failed ({error.strerror})") from error
    finally:
        Path(beside).unlink(missing_ok=True)
    return written


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    """The new name is on disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
