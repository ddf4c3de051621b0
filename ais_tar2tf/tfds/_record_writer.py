"""Payloads → one record file that TFDS reads."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import MissingDependency
from ais_tar2tf.export.framing import frame

__all__ = ["FORMATS", "record_writer"]

FORMATS = ("tfrecord", "array_record")

_GROUPING = "group_size:1"  # of ArrayRecord: one record a chunk, which random access needs
_BUFFER = 1 << 20  # bytes collected before a write


@contextlib.contextmanager
def record_writer(path: Path, file_format: str, *, compressed: bool) -> Generator[Callable[[bytes], None]]:
    """A function that adds a payload to the file; on disk when the context ends. TFRecord has no compression."""
    if file_format == "array_record":
        with _array_record(path, compressed) as put:
            yield put
        return
    with path.open("wb", buffering=_BUFFER) as file:

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
    writer = module.ArrayRecordWriter(os.fspath(path), _GROUPING if compressed else f"{_GROUPING},uncompressed")
    try:
        yield writer.write
    finally:
        writer.close()
