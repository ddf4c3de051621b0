"""Writes serialized records (*payloads*) to TFRecord files.

Each record belongs to a group, and each file holds records of one group. The caller names the files.

The records are first written to files in a work folder. Only `publish` gives the files their final names, and it does
so after the last record is written. So a run that fails before `publish` leaves the files of an earlier run
unchanged. This module must not serialize records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.options import MIB
from ais_tar2tf.recordfiles.export.boundaries import bounds_of
from ais_tar2tf.recordfiles.export.destinations import Destination, FolderDestination
from ais_tar2tf.recordfiles.export.journal import FinishedFile
from ais_tar2tf.recordfiles.export.locking import exclusive
from ais_tar2tf.recordfiles.export.os_errors import raise_export_errors
from ais_tar2tf.recordfiles.export.shard_output import EncodedBatch
from ais_tar2tf.recordfiles.export.target import ExportTarget
from ais_tar2tf.recordfiles.export.writers import SplitWriters
from ais_tar2tf.recordfiles.formats.tfrecord import FORMAT as TFRECORD

__all__ = ["FileNames", "PayloadFiles", "Publication"]

FileNames = Callable[[str, int, int], str]
"""Returns the name of a file.

The arguments are the group of the file, its number in the group, and the number of files in the group. The name may
begin with a folder and a slash.
"""

_BUFFERED_BYTES = 1 * MIB  # when the buffered payloads of a group reach this size, they are written together


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The names of the record files, and the files that are published together with them."""

    names: FileNames
    interim_documents: Callable[[], Mapping[str, bytes | None]] = dict[str, bytes | None]
    """Returns the contents of documents, by name. Before record files are replaced, each document is written.

    A document whose content is None is deleted instead. The lock at the destination is held while this function or
    `documents` is called.
    """
    documents: Callable[[], Mapping[str, bytes]] = dict[str, bytes]
    """Returns the final documents, in the order in which they are written. The last one completes the publication."""
    side_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Further files to publish, by their final names. Each path was returned by `PayloadFiles.side_file`."""
    stale: Sequence[str] = ()
    """The names of files of an earlier run, which are deleted unless this run replaces them."""


@dataclass
class _PayloadGroup:
    """One group of records, with the payloads that are not written yet."""

    number: int  # the place of the group among all groups
    buffered: list[bytes] = field(default_factory=list[bytes])  # payloads that are not written yet
    buffered_bytes: int = 0
    records: int = 0  # the number of payloads that were written


class PayloadFiles:
    """Record files that are being written. Call `add` for each record, then `finish`, then `publish`.

    Args:
        out: The folder or URL to which the files are published.
        groups: The names of the groups. Each file holds records of one group.
        size: The largest size of a file. A record that is larger gets a separate file.
    """

    def __init__(self, out: str | os.PathLike[str], groups: Sequence[str], *, size: int | str | None = None) -> None:
        self._target = ExportTarget(
            out=location_text(out),
            format=TFRECORD.name,
            name="",
            splits=tuple(groups),
            bounds=bounds_of(size, None),
            exists="replace",
        )
        with raise_export_errors(self._target.out):
            self.destination: Destination = self._target.destination()
            self.destination.check()
            self._work = self._target.work(start_over=True)
        self._writers = SplitWriters(self._target.splits, TFRECORD, self._target.bounds, self._work)
        self._groups = {group: _PayloadGroup(number) for number, group in enumerate(groups)}

    def __enter__(self) -> PayloadFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._writers.__exit__(*error)
        self._work.remove()
        self._work.close()

    def side_file(self, name: str) -> Path:
        """Return the path where the caller may write a file, to publish it together with the record files."""
        return self._work.path / f"{name}.side"

    def add(self, group: str, payload: bytes) -> None:
        """Append a record to a group."""
        target = self._groups[group]
        target.buffered.append(payload)
        target.buffered_bytes += len(payload)
        if target.buffered_bytes >= _BUFFERED_BYTES:
            self._write(target)

    def _write(self, group: _PayloadGroup) -> None:
        """Write the buffered payloads of a group to its files."""
        if not group.buffered:
            return
        batch = EncodedBatch.from_payloads(group.buffered, TFRECORD, group.records, group.number)
        group.records += len(group.buffered)
        group.buffered, group.buffered_bytes = [], 0
        with raise_export_errors(self._target.out):
            self._writers.add(batch)

    def finish(self) -> dict[str, list[FinishedFile]]:
        """Write all buffered records and sync all files to disk; return the files of each group in order."""
        for group in self._groups.values():
            self._write(group)
        with raise_export_errors(self._target.out):
            self._writers.finish()
        return {group: self._files(group) for group in self._groups}

    def _files(self, group: str) -> list[FinishedFile]:
        return sorted((file for file in self._work.files if file.split == group), key=lambda file: file.number)

    def publish(self, publication: Publication) -> list[str]:
        """Give all files their final names and write the documents; return the URLs of the record files."""
        moves = dict(publication.side_files)
        record_files: list[str] = []
        for group in self._groups:
            files = self._files(group)
            names = [publication.names(group, file.number, len(files)) for file in files]
            record_files += names
            moves.update(zip(names, (self._work.path / file.part for file in files), strict=True))
        with raise_export_errors(self._target.out):
            self._write_documents(publication.interim_documents)
            for name in publication.stale:
                if name not in moves:
                    self._folder_of(name).delete(_base(name))
            for name, part in moves.items():
                self._folder_of(name).move_in(part, _base(name))
            for name in {name.rpartition("/")[0]: name for name in moves}.values():  # one name in each folder
                self._folder_of(name).sync()
            self._write_documents(publication.documents)
            return [self._folder_of(name).url(_base(name)) for name in record_files]

    def _write_documents(self, documents: Callable[[], Mapping[str, bytes | None]]) -> None:
        with exclusive(self.destination):
            for name, content in documents().items():
                if content is None:
                    self._folder_of(name).delete(_base(name))
                else:
                    self._folder_of(name).write(_base(name), content)
            self.destination.sync()

    def _folder_of(self, name: str) -> Destination:
        """Return the folder of a file as a destination; create the folder if it does not exist."""
        folder = name.rpartition("/")[0]
        destination = self.destination
        if folder:
            destination = replace(self._target, out=f"{self._target.out.rstrip('/')}/{folder}").destination()
        if isinstance(destination, FolderDestination):
            destination.path.mkdir(parents=True, exist_ok=True)
        return destination


def _base(name: str) -> str:
    return name.rpartition("/")[2]
