"""Finished files get their final names, the manifest last. Killed anywhere in between, it is gone through again."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ais_tar2tf.errors import ExportError
from ais_tar2tf.export.alone import alone
from ais_tar2tf.export.formats import file_name
from ais_tar2tf.export.framing import FRAME_BYTES, frame_offsets
from ais_tar2tf.export.index_lines import index_lines
from ais_tar2tf.export.manifest import MANIFEST, Manifest, RecordFile, SplitEntry
from ais_tar2tf.export.metadata import METADATA, labels_name, metadata
from ais_tar2tf.export.places import Destination, Folder
from ais_tar2tf.export.work import FinishedFile, SourceShard, WorkFolder

__all__ = ["Output", "Publisher", "WorkOutput", "index_of", "read_manifest"]

_TAKEN_AT_ONCE = 8  # uploads of a file each, streamed: enough to hide a store's distance


def read_manifest(place: Destination) -> Manifest | None:
    data = place.read(MANIFEST)
    return None if data is None else Manifest.from_json(data, where=place.url(MANIFEST))


def index_of(part: Path) -> bytes:
    """DALI's index of a TFRecord file: a line `offset size` for each record, its frame included."""
    if part.stat().st_size < FRAME_BYTES:
        return b""
    with part.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        offsets = list(frame_offsets(data, file=os.fspath(part)))
    return index_lines(offsets)


class Output(Protocol):
    """Finished files that have no final names yet, and what was read for them."""

    files: list[FinishedFile]
    shards: dict[int, SourceShard]

    def take(self, file: FinishedFile, name: str, place: Destination, *, index: bool) -> bool:
        """The file is `name`, with DALI's index beside it if asked for; False when it was taken before."""
        ...

    def remove(self) -> None:
        """All is published."""
        ...


class WorkOutput:
    """What one work folder holds."""

    def __init__(self, work: WorkFolder) -> None:
        self._work = work
        self.files: list[FinishedFile] = work.files
        self.shards: dict[int, SourceShard] = work.shards

    def take(self, file: FinishedFile, name: str, place: Destination, *, index: bool) -> bool:
        part = self._work.path / file.part
        if not part.exists():
            return False
        if index:
            place.write(f"{name}.idx", index_of(part))
        place.take(part, name)
        return True

    def remove(self) -> None:
        self._work.remove()


@dataclass(frozen=True)
class Publisher:
    """Of the splits of one export, into one place."""

    place: Destination
    kind: str
    name: str
    splits: Sequence[str]
    index_files: bool = False

    def strangers(self, known: set[str]) -> list[str]:
        """Files that have a name which a file of these splits could have, and are none of `known`."""
        found: list[str] = []
        for split in self.splits:
            pattern = _pattern(self.name, split)
            prefix = f"{self.name}-{split}"
            found += [each for each in self.place.names(prefix) if pattern.fullmatch(each) and each not in known]
        return found

    def publish(self, output: Output, entries: dict[str, SplitEntry]) -> Manifest:
        """`entries` say everything but the files, which are those of `output`."""
        names = {split: self._names(output, split) for split in self.splits}
        coming = {name for each in names.values() for name in each}
        with alone(self.place):
            stale = self._retire(coming | ({f"{name}.idx" for name in coming} if self.index_files else set()))
        for name in stale:
            self.place.delete(name)
        for split in self.splits:
            self._take_all(output, _of_split(output, split), names[split])
        self.place.settle()
        with alone(self.place):  # another export may have published other splits meanwhile
            manifest = self._manifest(output, entries, names, self._kept(read_manifest(self.place)))
            for name, data in metadata(manifest).items():
                self.place.write(name, data)
            self.place.write(MANIFEST, manifest.to_json())
            self.place.settle()
        output.remove()
        return manifest

    def _names(self, output: Output, split: str) -> list[str]:
        total = len(_of_split(output, split))
        return [file_name(self.name, split, self.kind, number, total) for number in range(total)]

    def _kept(self, manifest: Manifest | None) -> dict[str, SplitEntry]:
        """The splits that stay."""
        old = {} if manifest is None else manifest.splits
        return {split: entry for split, entry in old.items() if split not in self.splits}

    def _retire(self, coming: set[str]) -> list[str]:
        """What stood here of these splits is in no manifest any more; gives the files, which are to be deleted."""
        manifest = read_manifest(self.place)
        old = {} if manifest is None else manifest.splits
        kept = self._kept(manifest)
        stale = {
            file.name
            for split in old.keys() - kept.keys()
            for file in old[split].files
            if manifest is not None and _pattern(manifest.name, split).fullmatch(file.name)  # else not of an export
        }
        if manifest is not None and len(kept) < len(old):
            self._publish_rest(manifest, kept)
        stale |= {f"{name}.idx" for name in stale if manifest is not None and manifest.index_files}
        return sorted((stale | set(self.strangers(coming))) - coming)

    def _publish_rest(self, manifest: Manifest, kept: dict[str, SplitEntry]) -> None:
        if not kept:
            for name in (MANIFEST, *METADATA, *map(labels_name, manifest.classes)):
                self.place.delete(name)
            self.place.settle()
            return
        rest = Manifest(manifest.format, manifest.name, kept, manifest.index_files)
        self.place.write(MANIFEST, rest.to_json())
        for name, data in metadata(rest).items():
            self.place.write(name, data)

    def _take_all(self, output: Output, files: Sequence[FinishedFile], names: Sequence[str]) -> None:
        """A store is asked for several at once: each answer takes its time."""
        if isinstance(self.place, Folder):
            for file, name in zip(files, names, strict=True):
                self._take(output, file, name)
            return
        with ThreadPoolExecutor(_TAKEN_AT_ONCE) as pool:
            taking = [pool.submit(self._take, output, *pair) for pair in zip(files, names, strict=True)]
            try:
                for each in taking:
                    each.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _take(self, output: Output, file: FinishedFile, name: str) -> None:
        taken = output.take(file, name, self.place, index=self.index_files)
        if not taken and self.place.size(name) != file.bytes:
            raise ExportError(f"{self.place.url(name)}: the file vanished before it was published; export it again")

    def _manifest(
        self,
        output: Output,
        entries: dict[str, SplitEntry],
        names: dict[str, list[str]],
        kept: dict[str, SplitEntry],
    ) -> Manifest:
        splits = dict(kept)
        for split, entry in entries.items():
            files = tuple(
                RecordFile(name, file.records, file.bytes, file.checksum)
                for file, name in zip(_of_split(output, split), names[split], strict=True)
            )
            splits[split] = replace(entry, files=files)
        return Manifest(self.kind, self.name, splits, self.index_files)


def _pattern(name: str, split: str) -> re.Pattern[str]:
    """Return what the names of an export's files look like, whatever its format."""
    begin = rf"{re.escape(name)}-{re.escape(split)}"
    return re.compile(rf"{begin}(\.(tfrecord|array_record))?-\d{{5,}}-of-\d{{5,}}(\.tar)?(\.idx)?")


def _of_split(output: Output, split: str) -> list[FinishedFile]:
    return sorted((file for file in output.files if file.split == split), key=lambda file: file.number)
