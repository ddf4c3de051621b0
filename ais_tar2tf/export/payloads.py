"""Serialized records of one's own → record files in groups, under names and with documents of the caller's.

All groups get their final names together, behind the last record: a run that fails leaves what was there before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.export.alone import alone
from ais_tar2tf.export.boundaries import bounds_of
from ais_tar2tf.export.parts import SplitWriter, Syncer
from ais_tar2tf.export.places import Destination, Folder
from ais_tar2tf.export.raw import Row, framed_rows
from ais_tar2tf.export.run import Target
from ais_tar2tf.export.shard_units import Units
from ais_tar2tf.export.work import FinishedFile
from ais_tar2tf.locations import location_text
from ais_tar2tf.options import MIB
from ais_tar2tf.stores import TokenSource

__all__ = ["FileNames", "PayloadFiles", "Publication"]

FileNames = Callable[[str, int, int], str]
"""(group, number of the file, how many there are) → the file's name; it may begin with a folder and a slash."""

_WAITING_BYTES = 1 * MIB  # of one group, not written yet
_NO_IDENTITY = ("", "", "", None)


def _target(
    out: str,
    groups: Sequence[str],
    *,
    size: int | str | None = None,
    records: int | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> Target:
    return Target(
        out=out,
        kind="tfrecord",
        name="",
        splits=tuple(groups),
        bounds=bounds_of(size, records),
        exists="replace",
        endpoint=endpoint,
        token=token,
    )


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What is published beside the record files. Documents are asked for while no other export can change them."""

    names: FileNames
    meanwhile: Callable[[], Mapping[str, bytes | None]] = dict[str, bytes | None]
    """Documents as they are to be while files change; None takes one away."""
    documents: Callable[[], Mapping[str, bytes]] = dict[str, bytes]
    """The last of them says that all is there."""
    side_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Files of `PayloadFiles.side_file`, by their final names."""
    stale: Sequence[str] = ()
    """Files of an earlier run; those that are written anew stay."""


@dataclass
class _Group:
    writer: SplitWriter
    waiting: list[Row] = field(default_factory=list[Row])
    size: int = 0
    records: int = 0


class PayloadFiles:
    """Record files that are being written. `add` records to groups, `finish`, then `publish`.

    `size` bounds a file's bytes, `records` its records; a larger record gets a file of its own.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        groups: Sequence[str],
        *,
        size: int | str | None = None,
        records: Mapping[str, int] | None = None,
        endpoint: str | None = None,
        token: TokenSource | None = None,
    ) -> None:
        self._target = _target(location_text(out), groups, size=size, endpoint=endpoint, token=token)
        with self._as_export_error():
            self.place: Destination = self._target.place()
            self.place.check()
            self._work = self._target.work(start_over=True)
        self._syncer = Syncer(self._work)
        bounds = {
            group: replace(self._target.bounds, records=None if records is None else records.get(group))
            for group in groups
        }
        self._groups = {
            group: _Group(SplitWriter(group, self._target.kind, bounds[group], self._work, self._syncer))
            for group in groups
        }

    def __enter__(self) -> PayloadFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups.values():
            group.writer.abandon()
        self._syncer.close()
        self._work.remove()
        self._work.close()

    @contextlib.contextmanager
    def _as_export_error(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, Tar2TFError):
                raise
            raise ExportError(f"{self._target.out}: writing failed ({error.strerror or error})") from error

    def side_file(self, name: str) -> Path:
        """Where a file that is to be published beside the records can be written."""
        return self._work.path / f"{name}.side"

    def add(self, group: str, payload: bytes) -> None:
        """One record behind the others of its group."""
        into = self._groups[group]
        into.waiting.append((payload,))
        into.size += len(payload)
        if into.size >= _WAITING_BYTES:
            self._write(into)

    def _write(self, group: _Group) -> None:
        if not group.waiting:
            return
        rows, sizes = framed_rows(group.waiting, [len(payload) for (payload,) in group.waiting])
        units = Units(0, 0, range(group.records, group.records + len(rows)), sizes, rows, _NO_IDENTITY)
        group.waiting, group.size = [], 0
        group.records += len(rows)
        with self._as_export_error():
            group.writer.add(units)

    def finish(self) -> dict[str, list[FinishedFile]]:
        """Every record is on disk; gives each group's files, in order."""
        for group in self._groups.values():
            self._write(group)
            with self._as_export_error():
                group.writer.close_file()
        with self._as_export_error():
            self._syncer.finish()
        return {group: self._files(group) for group in self._groups}

    def _files(self, group: str) -> list[FinishedFile]:
        return sorted((file for file in self._work.files if file.split == group), key=lambda file: file.number)

    def publish(self, publication: Publication) -> list[str]:
        """Final names for all; gives the record files."""
        with self._as_export_error():
            return self._publish(publication)

    def _publish(self, publication: Publication) -> list[str]:
        moves = dict(publication.side_files)
        record_files: list[str] = []
        for group in self._groups:
            files = self._files(group)
            names = [publication.names(group, file.number, len(files)) for file in files]
            record_files += names
            moves.update(zip(names, (self._work.path / file.part for file in files), strict=True))
        with alone(self.place):
            for name, content in publication.meanwhile().items():
                _replace_document(self._place(name), _base(name), content)
        for name in publication.stale:
            if name not in moves:
                self._place(name).delete(_base(name))
        for name, part in moves.items():
            self._place(name).take(part, _base(name))
        for place in {_folder(name): self._place(name) for name in moves}.values():
            place.settle()
        with alone(self.place):
            for name, content in publication.documents().items():
                _replace_document(self._place(name), _base(name), content)
            self.place.settle()
        return [self._place(name).url(_base(name)) for name in record_files]

    def _place(self, name: str) -> Destination:
        """The folder of a file, made if it is not there."""
        folder = _folder(name)
        place = (
            replace(self._target, out=f"{self._target.out.rstrip('/')}/{folder}").place() if folder else self.place
        )
        if isinstance(place, Folder):
            place.path.mkdir(parents=True, exist_ok=True)
        return place


def _replace_document(place: Destination, name: str, content: bytes | None) -> None:
    if content is None:
        place.delete(name)
    else:
        place.write(name, content)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _base(name: str) -> str:
    return name.rpartition("/")[2]
