"""Reads records of an export by split and number: single records, slices, and streams.

This module must not import TensorFlow, and must not parse files or decode records by itself: the reader of a format
parses files, and a schema decodes records.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, overload

from ais_tar2tf.errors import ExportError, NoSuchRecord
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.recordfiles.export.splits import SplitRange, slice_ranges
from ais_tar2tf.recordfiles.formats.base import RecordFile, RecordReader
from ais_tar2tf.recordfiles.formats.byte_files import HashedStream, copy_stream
from ais_tar2tf.recordfiles.loading.stored_files import Files
from ais_tar2tf.records import Record
from ais_tar2tf.values.schema import Schema

__all__ = ["RecordFiles", "RecordSequence"]

ReadTar = Callable[[str], Iterator[Record]]
"""A function that reads the records of a tar. Its argument is the URL of the tar."""

_OPEN_FILES = 64  # the most readers that stay open; a reader of a TFRecord file takes 8 bytes for each record


class RecordSequence(Sequence[Record]):
    """The records of some ranges of splits, one range after another. A record is read only when it is requested."""

    def __init__(self, files: RecordFiles, ranges: Sequence[SplitRange]) -> None:
        self._files = files
        # The splits of empty ranges are included, because their schemas are merged, too.
        self._splits = dict.fromkeys(each.split for each in ranges)
        self.ranges: list[SplitRange] = [each for each in ranges if each.stop > each.start]
        self._ends = list(accumulate(each.stop - each.start for each in self.ranges))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise NoSuchRecord(f"record {index} of {len(self):,}")
        which = bisect_right(self._ends, at)
        found = self.ranges[which]
        return self._files.record(found.split, found.stop - (self._ends[which] - at))

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(read() for read in self.readers())

    @property
    def schema(self) -> Schema:
        """The merged schema of the splits."""
        schemas = [self._files.manifest.splits[split].schema for split in self._splits]
        return reduce(Schema.merge, schemas, Schema(records=0))

    def readers(self) -> list[Callable[[], Iterator[Record]]]:
        """Return one function for each file that holds records of this sequence, in the order of the records.

        Each function reads those records of its file that belong to this sequence.
        """
        return [
            partial(self._files.records, each.split, *span)
            for each in self.ranges
            for span in self.in_range(each).spans()
        ]

    def skip(self, count: int) -> RecordSequence:
        """Return this sequence without its first `count` records. No record is read."""
        rest = RecordSequence(self._files, slice_ranges(self.ranges, count, len(self)))
        rest._splits = self._splits
        return rest

    def in_range(self, wanted: SplitRange) -> RecordSequence:
        """Return the records of one range."""
        return RecordSequence(self._files, [wanted])

    def payloads(self) -> Iterator[bytes]:
        """Yield the records as serialized Examples, in one pass over each file."""
        for file, start, stop in self.spans():
            yield from self._files.payloads(file, start, stop)

    def spans(self) -> Iterator[tuple[RecordFile, int, int]]:
        """Yield (file, start, stop) for each file that holds records of this sequence.

        In the file, the records of this sequence have the numbers from `start` on, and before `stop`.
        """
        for each in self.ranges:
            begin = 0
            for file in self._files.manifest.splits[each.split].files:
                start, stop = max(each.start - begin, 0), min(each.stop - begin, file.records)
                if start < stop:
                    yield file, start, stop
                begin += file.records


class RecordFiles:
    """The record files of one export. The readers of the most recently used files stay open.

    Args:
        files: Opens files by name.
        manifest: Describes the files.
        read_tar: Reads tars, which have no random access. Without this function, tars cannot be read.
    """

    def __init__(self, files: Files, manifest: Manifest, read_tar: ReadTar | None = None) -> None:
        self.manifest: Manifest = manifest
        self._files = files
        self._format = manifest.record_format
        self._read_tar = read_tar
        self._ends = {
            name: list(accumulate(file.records for file in entry.files)) for name, entry in manifest.splits.items()
        }
        self._open: OrderedDict[str, RecordReader] = OrderedDict()
        self._downloads = _Downloads()

    def record(self, split: str, number: int) -> Record:
        """Return a record by its number in a split."""
        ends = self._ends[split]
        which = bisect_right(ends, number)
        file = self.manifest.splits[split].files[which]
        return self.decoded(split, self.payload(file, number - (ends[which] - file.records)))

    def decoded(self, split: str, payload: bytes) -> Record:
        """Return the record that a serialized Example holds."""
        return self.manifest.splits[split].schema.decode(payload)

    def payload(self, file: RecordFile, number: int) -> bytes:
        """Return the payload of a record by its number in a file."""
        self._require_random_access()
        self._files.check(file.name)
        return self._reader(file).read(number)

    def records(self, split: str, file: RecordFile, start: int, stop: int) -> Iterator[Record]:
        """Yield the records of a file from number `start` on and before number `stop`, in one pass."""
        if not self._format.holds_examples and self._read_tar is not None:
            self._files.check_remote(file.name)
            for record in islice(self._read_tar(self._files.url(file.name)), start, stop):
                yield {name: value for name, value in record.items() if name != "__shard__"}
            self._files.check_remote(file.name)
        else:
            for payload in self.payloads(file, start, stop):
                yield self.decoded(split, payload)

    def payloads(self, file: RecordFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield the payloads of a file's records from number `start` on and before number `stop`."""
        self._require_random_access()
        yield from self._format.payloads(self._stored(file), start, stop, partial(self.payload, file))

    def _require_random_access(self) -> None:
        if not self._format.random_access:
            raise ExportError(
                f"single records of {self._format.name} files can't be read; use .records(), .dataset(), "
                "or t2t.open(files) with an index"
            )

    def _reader(self, file: RecordFile) -> RecordReader:
        reader = self._open.get(file.name)
        if reader is None:
            reader = self._open[file.name] = self._format.open_reader(self._stored(file))
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(file.name)
        return reader

    def _stored(self, file: RecordFile) -> _ExportedFile:
        return _ExportedFile(self._files, file, self._downloads, has_index=self.manifest.index_files)


class _Downloads:
    """A temporary folder for copies of files from a store. The folder is deleted together with this object."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def copy_of(self, files: Files, name: str) -> Path:
        """Copy a file into the folder and return the path of the copy."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ais_tar2tf-"))
            weakref.finalize(self, _remove, self._folder, os.getpid())
        with files.stream(name) as stream:
            return copy_stream(stream, self._folder).rename(self._folder / name.replace("/", "+"))


class _ExportedFile:
    """A file of an export. It implements `StoredFile`, from which a format reads."""

    def __init__(self, files: Files, described: RecordFile, downloads: _Downloads, *, has_index: bool) -> None:
        self.described: RecordFile = described
        self.url: str = files.url(described.name)
        self.local: bool = files.local
        self.has_index: bool = has_index
        self._files = files
        self._downloads = downloads

    def read(self, start: int, stop: int) -> bytes:
        return self._files.read(self.described.name, start, stop)

    def stream(self, suffix: str = "") -> io.BufferedReader[Any]:
        return self._files.stream(self.described.name + suffix)

    def hashed(self) -> HashedStream:
        return HashedStream(self._files.raw(self.described.name))

    def local_path(self) -> Path:
        return Path(self.url) if self.local else self._downloads.copy_of(self._files, self.described.name)


def _remove(folder: Path, owner: int) -> None:
    """Delete a temporary folder in the process `owner`, which made the folder.

    A forked child of the process `owner` has a copy of the finalizer, and must not delete the folder.
    """
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
