"""The writer of one record file in a format that TFDS reads."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.recordfiles.formats import all_formats, find_format
from ais_tar2tf.recordfiles.formats.framing import frame

__all__ = ["FORMATS", "record_writer"]

FORMATS = tuple(each.name for each in all_formats() if each.read_by_tfds)

_ARRAY_RECORD_OPTIONS = "group_size:1"  # one record in each group, for random access
_BUFFER_BYTES = 1 << 20  # bytes that are collected before each write


@contextlib.contextmanager
def record_writer(path: Path, file_format: str, *, compressed: bool) -> Generator[Callable[[bytes], None]]:
    """Open a record file, and yield a function that appends a payload.

    The file is complete when the context ends without an error. A TFRecord file is then also synced to disk.
    `compressed` applies to ArrayRecord only.
    """
    if not find_format(file_format).concatenated:  # ArrayRecord, whose files only its own library writes
        with _array_record(path, compressed) as write:
            yield write
        return
    with path.open("wb", buffering=_BUFFER_BYTES) as file:

        def put_framed(payload: bytes) -> None:
            file.write(frame(payload))

        yield put_framed
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _array_record(path: Path, compressed: bool) -> Generator[Callable[[bytes], None]]:
    try:
        module: Any = importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise MissingDependency("array_record", extra="tfds") from error
    writer = module.ArrayRecordWriter(
        os.fspath(path), _ARRAY_RECORD_OPTIONS + ("" if compressed else ",uncompressed")
    )
    try:
        yield writer.write
    finally:
        writer.close()
