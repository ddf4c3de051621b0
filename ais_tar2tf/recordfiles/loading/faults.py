"""Find the damaged TFRecord file and the offset of the fault, when TensorFlow's reader has failed.

TensorFlow's error about damage states an offset at most, but no file. This module opens the files
only after TensorFlow's reader has failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.errors import ArchiveError, Tar2TFError, ask_for_originals
from ais_tar2tf.recordfiles.formats.byte_files import mapped_file
from ais_tar2tf.recordfiles.formats.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    check_frame,
    frame_offsets,
    payload_length,
)
from ais_tar2tf.stores.file import file_error
from ais_tar2tf.tfdata.iterators import ErrorTranslatingDataset

__all__ = ["DiagnosedTFRecords", "NamedFile"]

_DAMAGED = re.compile(r"(?:corrupted|truncated) record at (\d+)")
_TOO_FEW = re.compile(r"expected to contain \d+ elements but contained only \d+ elements")
_ABSENT = "No such file or directory"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A local TFRecord file that TensorFlow reads."""

    path: str
    records: int | None = None  # the number of records that its manifest states; None without a manifest


class DiagnosedTFRecords(ErrorTranslatingDataset):
    """A dataset that reads local TFRecord files. Its errors name the damaged file and the offset."""

    def __init__(self, inner: Any, files: Sequence[NamedFile]) -> None:
        super().__init__(inner)
        self._files = tuple(files)
        ask_for_originals(self)

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the fault that made TensorFlow fail with this text, with file and offset; None if none is found."""
        damaged = _DAMAGED.search(text)
        if damaged is not None:
            faults = (_fault_at(file, int(damaged[1])) for file in self._files)
        elif _TOO_FEW.search(text) is not None:
            faults = map(_fault, self._files)
        else:
            faults = (_fault(file) for file in self._files if f"{file.path}; {_ABSENT}" in text)
        return next(filter(None, faults), None)


def _fault(file: NamedFile) -> Tar2TFError | None:
    """Return the error in the framing of a file or in the number of its records, if there is one."""
    try:
        with mapped_file(file.path) as data:
            *begins, end = frame_offsets(data, file=file.path)
    except Tar2TFError as error:
        return error
    except OSError as error:
        return file_error(error, file.path)
    if file.records in (None, len(begins)):
        return None
    count = f"the file has {len(begins):,} records, and the manifest says {file.records:,}"
    return ArchiveError(count, shard=file.path, offset=end)


def _fault_at(file: NamedFile, reported: int) -> Tar2TFError | None:
    """Return the error in the record whose frame or payload begins at the reported offset, if there is one."""
    begins = (reported, reported - HEADER_BYTES)
    try:
        with mapped_file(file.path) as data:
            for offset in frame_offsets(data, file=file.path):
                if offset in begins and offset < len(data):
                    header = bytes(data[offset : offset + HEADER_BYTES])
                    stop = offset + FRAME_BYTES + payload_length(header, file=file.path, offset=offset)
                    check_frame(bytes(data[offset:stop]), file=file.path, offset=offset)
                if offset >= reported:
                    break
    except (Tar2TFError, OSError) as error:
        return error if isinstance(error, ArchiveError) and error.offset in begins else None
    return None
