"""The publication of finished files: the files get their final names, and then the manifest is written.

If a run is killed before the end, the next run continues, and skips the files that are published already. This module
must not write records, and the manifest must never list a file that does not exist.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export.destinations import Destination, FolderDestination
from ais_tar2tf.recordfiles.export.journal import FinishedFile, SourceShard, WorkFolder
from ais_tar2tf.recordfiles.export.locking import exclusive
from ais_tar2tf.recordfiles.export.manifest import MANIFEST, Manifest, RecordFile, SplitEntry
from ais_tar2tf.recordfiles.export.metadata import METADATA, labels_name, metadata
from ais_tar2tf.recordfiles.formats import all_formats, find_format
from ais_tar2tf.recordfiles.formats.base import RecordFormat

__all__ = ["Output", "Publisher", "WorkOutput", "read_manifest"]

_CONCURRENT_UPLOADS = 8  # enough to hide the latency of a store


def read_manifest(destination: Destination) -> Manifest | None:
    """Return the manifest at a destination; None if the destination has no manifest."""
    data = destination.read(MANIFEST)
    return None if data is None else Manifest.from_json(data, where=destination.url(MANIFEST))


class Output(ABC):
    """Finished files that have no final names yet, and the input shards that were read for them."""

    files: list[FinishedFile]
    shards: dict[int, SourceShard]

    @abstractmethod
    def publish_file(self, file: FinishedFile, name: str, destination: Destination, *, index: bool) -> bool:
        """Move a file to its final name. With `index`, also write the index of the file, `NAME.idx`.

        Return False if the file does not exist any more, usually because an earlier run has moved it.
        """

    @abstractmethod
    def remove(self) -> None:
        """Delete the folder in which the files were written: a work folder or a staging folder."""


class WorkOutput(Output):
    """The finished files of one work folder."""

    def __init__(self, work: WorkFolder, record_format: RecordFormat) -> None:
        self._work = work
        self._format = record_format
        self.files: list[FinishedFile] = work.files
        self.shards: dict[int, SourceShard] = work.shards

    def publish_file(self, file: FinishedFile, name: str, destination: Destination, *, index: bool) -> bool:
        part = self._work.path / file.part
        if not part.exists():
            return False
        if index:
            destination.write(f"{name}.idx", self._format.index_of(part))
        destination.move_in(part, name)
        return True

    def remove(self) -> None:
        self._work.remove()


@dataclass(frozen=True)
class Publisher:
    """Publishes the splits of one export at one destination.

    Attributes:
        destination: The folder or the store that gets the files.
        format: The name of the record format.
        name: The name of the data set, with which the names of all its files begin.
        splits: The names of the splits.
        index_files: Whether each file gets an index.
    """

    destination: Destination
    format: str
    name: str
    splits: Sequence[str]
    index_files: bool = False

    def existing_files(self) -> list[str]:
        """Return the names of existing files that look like files of these splits, even if no manifest lists them."""
        found: list[str] = []
        for split in self.splits:
            pattern = _name_pattern(self.name, split)
            names = self.destination.names(f"{self.name}-{split}")
            found += [each for each in names if pattern.fullmatch(each)]
        return found

    def publish(self, output: Output, entries: dict[str, SplitEntry]) -> Manifest:
        """Publish the files of `output`; return the new manifest.

        First, earlier versions of the splits are removed from the manifest at the destination. Then the files are
        replaced. Finally, the new entries are added to the manifest. So at any time, the manifest lists only complete
        splits.

        Args:
            output: The finished files.
            entries: For each split, its entry in the manifest, without the files.
        """
        names = {split: self._names(output, split) for split in self.splits}
        new = {name for each in names.values() for name in each}
        with exclusive(self.destination):
            stale = self._withdraw(new | ({f"{name}.idx" for name in new} if self.index_files else set()))
        for name in stale:
            self.destination.delete(name)
        for split in self.splits:
            self._publish_files(output, _files_of(output, split), names[split])
        self.destination.sync()
        with exclusive(self.destination):  # another export may have published other splits meanwhile
            manifest = self._manifest(output, entries, names, self._other_splits(read_manifest(self.destination)))
            for name, data in metadata(manifest).items():
                self.destination.write(name, data)
            self.destination.write(MANIFEST, manifest.to_json())
            self.destination.sync()
        output.remove()
        return manifest

    def _names(self, output: Output, split: str) -> list[str]:
        total = len(_files_of(output, split))
        return [find_format(self.format).file_name(self.name, split, number, total) for number in range(total)]

    def _other_splits(self, manifest: Manifest | None) -> dict[str, SplitEntry]:
        """Return the published splits that this export does not replace."""
        old = {} if manifest is None else manifest.splits
        return {split: entry for split, entry in old.items() if split not in self.splits}

    def _withdraw(self, new: set[str]) -> list[str]:
        """Remove earlier versions of these splits from the manifest; return the names of the files to delete.

        These are the files of the earlier versions. Names in `new` are not returned, because new files will replace
        the files with these names.
        """
        stale: set[str] = set()
        manifest = read_manifest(self.destination)
        if manifest is not None:
            others = self._other_splits(manifest)
            stale = {
                file.name
                for split in manifest.splits.keys() - others.keys()
                for file in manifest.splits[split].files
                if _name_pattern(manifest.name, split).fullmatch(file.name)  # a forged manifest could list any file
            }
            if len(others) < len(manifest.splits):
                self._publish_others(manifest, others)
            if manifest.index_files:
                stale |= {f"{name}.idx" for name in stale}
        return sorted((stale | set(self.existing_files())) - new)

    def _publish_others(self, manifest: Manifest, others: dict[str, SplitEntry]) -> None:
        """Write the manifest and the documents for TFDS with the splits `others` only.

        If there are no other splits, delete the manifest and these documents.
        """
        if not others:
            for name in (MANIFEST, *METADATA, *map(labels_name, manifest.classes)):
                self.destination.delete(name)
            self.destination.sync()
            return
        remaining = Manifest(manifest.format, manifest.name, others, manifest.index_files)
        self.destination.write(MANIFEST, remaining.to_json())
        for name, data in metadata(remaining).items():
            self.destination.write(name, data)

    def _publish_files(self, output: Output, files: Sequence[FinishedFile], names: Sequence[str]) -> None:
        """Give files their final names. In a store, upload several files at once to hide the latency."""
        if isinstance(self.destination, FolderDestination):
            for file, name in zip(files, names, strict=True):
                self._publish_file(output, file, name)
            return
        with ThreadPoolExecutor(_CONCURRENT_UPLOADS) as pool:
            pending = [pool.submit(self._publish_file, output, *pair) for pair in zip(files, names, strict=True)]
            try:
                for each in pending:
                    each.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _publish_file(self, output: Output, file: FinishedFile, name: str) -> None:
        moved = output.publish_file(file, name, self.destination, index=self.index_files)
        if not moved and self.destination.size(name) != file.bytes:
            raise ExportError(
                f"{self.destination.url(name)}: the file vanished before it was published; export it again"
            )

    def _manifest(
        self,
        output: Output,
        entries: dict[str, SplitEntry],
        names: dict[str, list[str]],
        others: dict[str, SplitEntry],
    ) -> Manifest:
        splits = dict(others)
        for split, entry in entries.items():
            files = tuple(
                RecordFile(name, file.records, file.bytes, file.checksum)
                for file, name in zip(_files_of(output, split), names[split], strict=True)
            )
            splits[split] = replace(entry, files=files)
        return Manifest(self.format, self.name, splits, self.index_files)


def _name_pattern(name: str, split: str) -> re.Pattern[str]:
    """Return the pattern of the names that files of a split can have, in any format."""
    infixes = "|".join(sorted({re.escape(each.infix) for each in all_formats()}))
    extensions = "|".join(sorted({re.escape(each.extension) for each in all_formats()}))
    begin = rf"{re.escape(name)}-{re.escape(split)}"
    return re.compile(rf"{begin}({infixes})-\d{{5,}}-of-\d{{5,}}({extensions})(\.idx)?")


def _files_of(output: Output, split: str) -> list[FinishedFile]:
    return sorted((file for file in output.files if file.split == split), key=lambda file: file.number)
