"""Records that were written, by number: what is needed to find them is remembered for the files used last."""

from __future__ import annotations

import io
import mmap
import os
import shutil
import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, overload

from ais_tar2tf.errors import ArchiveError, ExportError, NoSuchRecord
from ais_tar2tf.export.array_files import ArrayFile
from ais_tar2tf.export.framing import check_frame, frame_offsets
from ais_tar2tf.export.index_lines import offsets_in
from ais_tar2tf.export.manifest import Manifest, RecordFile
from ais_tar2tf.export.splits import Part, cut_out
from ais_tar2tf.export.streams import Files, Hashed
from ais_tar2tf.export.verify import frames, local_copy
from ais_tar2tf.records import Record
from ais_tar2tf.schema import Schema

__all__ = ["Records", "Shelf"]

ReadTar = Callable[[str], Iterator[Record]]
"""From a tar's URL to its records."""

_READ = 1 << 20
_OPEN_FILES = 64  # files whose offsets are remembered: 8 bytes a record


class Records(Sequence[Record]):
    """Records of some parts of some splits, one after another: `len`, an index, slices, iteration. No TensorFlow."""

    def __init__(self, shelf: Shelf, parts: Sequence[Part]) -> None:
        self._shelf = shelf
        self._splits = dict.fromkeys(part.split for part in parts)  # of no records, too: they have a schema
        self.parts: list[Part] = [part for part in parts if part.stop > part.start]
        self._ends = list(accumulate(part.stop - part.start for part in self.parts))

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
        part = self.parts[which]
        begin = self._ends[which] - (part.stop - part.start)
        return self._shelf.record(part.split, part.start + at - begin)

    def __iter__(self) -> Iterator[Record]:
        for part in self.parts:
            yield from self._shelf.records(part.split, self.of_part(part).spans())

    @property
    def schema(self) -> Schema:
        """Of the records of these splits."""
        schemas = [self._shelf.manifest.splits[split].schema for split in self._splits]
        return reduce(Schema.merge, schemas, Schema(records=0))

    def readers(self) -> list[Callable[[], Iterator[Record]]]:
        """For each file that has records of these, in order, what reads them."""
        return [
            partial(self._shelf.records, part.split, [span])
            for part in self.parts
            for span in self.of_part(part).spans()
        ]

    def behind(self, count: int) -> Records:
        """The same without the first `count` records, which are not read."""
        kept = Records(self._shelf, cut_out(self.parts, count, len(self)))
        kept._splits = self._splits
        return kept

    def of_part(self, part: Part) -> Records:
        return Records(self._shelf, [part])

    def payloads(self) -> Iterator[bytes]:
        """Serialized Examples, streamed file by file."""
        for file, start, stop in self.spans():
            yield from self._shelf.payloads(file, start, stop)

    def spans(self) -> Iterator[tuple[RecordFile, int, int]]:
        """(file, first record, behind the last) for each file that has records of these."""
        for part in self.parts:
            begin = 0
            for file in self._shelf.manifest.splits[part.split].files:
                start, stop = max(part.start - begin, 0), min(part.stop - begin, file.records)
                if start < stop:
                    yield file, start, stop
                begin += file.records


class Shelf:
    """Single records of files, by number; what is needed to find them is remembered for the files used last."""

    def __init__(self, files: Files, manifest: Manifest, read_tar: ReadTar | None = None) -> None:
        self.manifest: Manifest = manifest
        self._files = files
        self._read_tar = read_tar
        self._ends = {
            name: list(accumulate(file.records for file in entry.files)) for name, entry in manifest.splits.items()
        }
        self._open: OrderedDict[str, Any] = OrderedDict()
        self._folder: Path | None = None

    def record(self, split: str, number: int) -> Record:
        ends = self._ends[split]
        which = bisect_right(ends, number)
        file = self.manifest.splits[split].files[which]
        at = number - (ends[which] - file.records)
        return self.decoded(split, self._payload(file, at))

    def decoded(self, split: str, payload: bytes) -> Record:
        return self.manifest.splits[split].schema.decode(payload)

    def _payload(self, file: RecordFile, at: int) -> bytes:
        if self.manifest.format == "tfrecord":
            self._files.check(file.name)
            offsets = self._opened(file, self._offsets)
            begin = offsets[at]
            data = self._files.read(file.name, begin, offsets[at + 1])
            return check_frame(data, file=self._files.url(file.name), offset=begin)
        self._only("array_record")
        self._files.check(file.name)
        return self._opened(file, self._array_file).read(at)

    def records(self, split: str, spans: Iterable[tuple[RecordFile, int, int]]) -> Iterator[Record]:
        """Streamed, file by file."""
        for file, start, stop in spans:
            if self.manifest.format == "tar" and self._read_tar is not None:
                self._files.ask(file.name)
                for record in islice(self._read_tar(self._files.url(file.name)), start, stop):
                    yield {name: value for name, value in record.items() if name != "__shard__"}
                self._files.ask(file.name)
            else:
                for payload in self.payloads(file, start, stop):
                    yield self.decoded(split, payload)

    def payloads(self, file: RecordFile, start: int, stop: int) -> Iterator[bytes]:
        if self.manifest.format == "tfrecord":
            yield from self._framed(file, start, stop)
            return
        self._only("array_record")
        for at in range(start, stop):
            yield self._payload(file, at)

    def _framed(self, file: RecordFile, start: int, stop: int) -> Iterator[bytes]:
        """Payloads of a TFRecord file. When it is read to its end, its checksum must be that of the manifest."""
        url, number = self._files.url(file.name), 0
        hashed = Hashed(self._files.raw(file.name))
        with io.BufferedReader(hashed, _READ) as stream:
            for number, (_, payload) in enumerate(frames(stream, url), 1):
                if number > stop:
                    return
                if number > start:
                    yield payload
        if number < stop:
            raise ArchiveError(f"{number:,} records, not {file.records:,}", shard=url, offset=hashed.size)
        hashed.check(file, url)

    def _only(self, kind: str) -> None:
        if self.manifest.format != kind:
            raise ExportError(
                f"single records of {self.manifest.format} files can't be read; use .records(), .dataset(), "
                "or t2t.open(files) with an index"
            )

    def _opened(self, file: RecordFile, open_file: Callable[[RecordFile], Any]) -> Any:
        found = self._open.get(file.name)
        if found is None:
            found = self._open[file.name] = open_file(file)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(file.name)
        return found

    def _offsets(self, file: RecordFile) -> array[int]:
        """Where each record begins: from the index that was asked for, else from a walk over the headers."""
        url = self._files.url(file.name)
        if self.manifest.index_files:
            with self._files.stream(f"{file.name}.idx") as lines:
                return offsets_in(lines, file, url=f"{url}.idx")
        if not self._files.local:
            with self._files.stream(file.name) as stream:
                return array("Q", [*(offset for offset, _ in frames(stream, url)), file.bytes])
        with (
            self._files.stream(file.name) as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return array("Q", frame_offsets(data, file=url))

    def _array_file(self, file: RecordFile) -> ArrayFile:
        url = self._files.url(file.name)
        path = Path(url)
        if not self._files.local:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="ais_tar2tf-"))
                weakref.finalize(self, _remove, self._folder, os.getpid())
            with self._files.stream(file.name) as stream:
                copy = local_copy(stream, self._folder)
                path = copy.rename(self._folder / file.name.replace("/", "+"))
        return ArrayFile(path, url)


def _remove(folder: Path, owner: int) -> None:
    """Delete a temporary folder, if this is the process that made it: a forked child has the same finalizer."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
