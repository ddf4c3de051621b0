"""Which file is damaged, and where: TensorFlow's reader says an offset at most. Nothing is read before it failed."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ArchiveError, Tar2TFError, ask_for_originals
from ais_tar2tf.export.framing import FRAME_BYTES, HEADER_BYTES, check_frame, frame_offsets, payload_length
from ais_tar2tf.stores.file import translated
from ais_tar2tf.tfdata.iterating import OurDataset

__all__ = ["NamedFile", "TFRecordFiles"]

_DAMAGED = re.compile(r"(?:corrupted|truncated) record at (\d+)")
_TOO_FEW = re.compile(r"expected to contain \d+ elements but contained only \d+ elements")
_ABSENT = "No such file or directory"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A local TFRecord file; `records` is how many its manifest says, None where nothing says it."""

    path: str
    records: int | None = None


class TFRecordFiles(OurDataset):
    """A dataset read from local TFRecord files, which finds what is wrong with one of them."""

    def __init__(self, inner: Any, files: Sequence[NamedFile]) -> None:
        super().__init__(inner)
        self._files = tuple(files)
        ask_for_originals(self)

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the error with file and offset that TensorFlow's text stands for."""
        damaged = _DAMAGED.search(text)
        if damaged is not None:
            return self._first(_fault_at(file, int(damaged[1])) for file in self._files)
        if _TOO_FEW.search(text) is not None:
            return self._first(map(_fault, self._files))
        return self._first(_fault(file) for file in self._files if f"{file.path}; {_ABSENT}" in text)

    def _first(self, faults: Iterator[Tar2TFError | None]) -> Tar2TFError | None:
        return next(filter(None, faults), None)


def _fault(file: NamedFile) -> Tar2TFError | None:
    """Return what is wrong with the framing of a file, or with the number of its records."""
    try:
        with _Mapped(file.path) as data:
            *begins, end = frame_offsets(data, file=file.path)
    except Tar2TFError as error:
        return error
    if file.records in (None, len(begins)):
        return None
    count = f"the file has {len(begins):,} records, and the manifest says {file.records:,}"
    return ArchiveError(count, shard=file.path, offset=end)


def _fault_at(file: NamedFile, said: int) -> Tar2TFError | None:
    """Return what is wrong with the record that begins at an offset, or whose payload does."""
    try:
        with _Mapped(file.path) as data:
            for offset in frame_offsets(data, file=file.path):
                if offset in (said, said - HEADER_BYTES) and offset < len(data):
                    header = bytes(data[offset : offset + HEADER_BYTES])
                    stop = offset + FRAME_BYTES + payload_length(header, file=file.path, offset=offset)
                    check_frame(bytes(data[offset:stop]), file=file.path, offset=offset)
                if offset >= said:
                    return None
    except ArchiveError as error:
        return error if error.offset in (said, said - HEADER_BYTES) else None
    except Tar2TFError:
        return None
    return None


class _Mapped:
    """The bytes of a file while the block runs."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> Any:
        try:
            with Path(self._path).open("rb") as file:
                self._data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file has nothing to map
            self._data = None
        except OSError as error:
            raise translated(error, self._path) from error
        return self._data if self._data is not None else b""

    def __exit__(self, *_: object) -> None:
        if self._data is not None:
            self._data.close()
