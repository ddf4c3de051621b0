"""The format TFRecord: tf.train.Examples, each with its length and checksums, without an end mark."""

from __future__ import annotations

import io
import mmap
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ArchiveError
from ais_tar2tf.recordfiles.formats.base import RecordReader, Scan, StoredFile
from ais_tar2tf.recordfiles.formats.byte_files import mapped_file
from ais_tar2tf.recordfiles.formats.dali_index import index_lines, offsets_in
from ais_tar2tf.recordfiles.formats.examples import ExampleFormat
from ais_tar2tf.recordfiles.formats.framing import check_frame, frame_offsets, read_frames
from ais_tar2tf.recordfiles.formats.rows import Row, framed_rows

__all__ = ["FORMAT"]

_READ = 1 << 20


class _TFRecordFormat(ExampleFormat):
    name = "tfrecord"
    infix = ".tfrecord"
    read_by_tensorflow = True
    supports_index = True

    def framed(self, rows: list[Row], sizes: list[int]) -> tuple[list[Row], list[int]]:
        return framed_rows(rows, sizes)

    def scan(self, stream: io.BufferedReader[Any], url: str) -> Scan:
        offsets = array("Q", (offset for offset, _ in read_frames(stream, url)))
        return Scan(len(offsets), offsets)

    def index_of(self, path: Path) -> bytes:
        with mapped_file(path) as data:
            return index_lines(frame_offsets(data, file=os.fspath(path)))

    def open_reader(self, file: StoredFile) -> RecordReader:
        return _IndexedTFRecordFile(file)

    def payloads(self, file: StoredFile, start: int, stop: int, read: Callable[[int], bytes]) -> Iterator[bytes]:
        """Yield the payloads in one pass over the file. At its end, compare its checksum with the manifest."""
        del read
        number, hashed = 0, file.hashed()
        with io.BufferedReader(hashed, _READ) as stream:
            for number, (_, payload) in enumerate(read_frames(stream, file.url), 1):
                if number > stop:
                    return
                if number > start:
                    yield payload
        if number < stop:
            raise ArchiveError(
                f"{number:,} records, not {file.described.records:,}", shard=file.url, offset=hashed.size
            )
        hashed.check(file.described.checksum, file.url)


class _IndexedTFRecordFile:
    """Reads records of a TFRecord file by number. It holds the offsets of all records: 8 bytes for each."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._offsets = _offsets(file)

    def read(self, number: int) -> bytes:
        begin = self._offsets[number]
        data = self._file.read(begin, self._offsets[number + 1])
        return check_frame(data, file=self._file.url, offset=begin)


def _offsets(file: StoredFile) -> array[int]:
    """Return the offset of each record and the length of the file, from its index or from the records' headers."""
    if file.has_index:
        with file.stream(".idx") as lines:
            return offsets_in(lines, file.described, url=f"{file.url}.idx")
    if not file.local:
        with file.stream() as stream:
            return array("Q", [*(offset for offset, _ in read_frames(stream, file.url)), file.described.bytes])
    with file.stream() as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return array("Q", frame_offsets(data, file=file.url))


FORMAT = _TFRecordFormat()
