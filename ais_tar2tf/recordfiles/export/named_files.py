"""TFRecord files under names that the user gives, for the option `path=`.

All files are replaced together, after the last record is written. There is no manifest, and no journal to resume
from.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ais_tar2tf.base.documents.folders import sync
from ais_tar2tf.base.monitoring.stats import Account, OnError
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.batches import payload_batches
from ais_tar2tf.recordfiles.export.boundaries import bounds_of
from ais_tar2tf.recordfiles.export.journal import WorkFolder
from ais_tar2tf.recordfiles.export.os_errors import raise_export_errors
from ais_tar2tf.recordfiles.export.routing import SingleRoute
from ais_tar2tf.recordfiles.export.serializers import Serializer
from ais_tar2tf.recordfiles.export.shard_output import EncodedBatch, ExportJob, read_shard
from ais_tar2tf.recordfiles.export.writers import SplitWriters
from ais_tar2tf.recordfiles.formats.tfrecord import FORMAT as TFRECORD
from ais_tar2tf.records import Record
from ais_tar2tf.streams.reader import Shards
from ais_tar2tf.values.default_mappings import declared_fields

__all__ = ["Paths", "write_files", "write_payloads"]

Paths = str | os.PathLike[str] | Callable[[], Iterable[str]]
"""The path of a file, a template, or a function that returns paths.

In a template such as `train-{}.record` or `train-{:05d}.record`, the number of a file, from 0, replaces the braces.
If one path is given and a bound on the size requires several files, they are named `train.record-00000-of-00003` and
so on.
"""

_SPLIT = "file"  # the work folder names files by split; these files belong to no split
_PLACE = re.compile(r"\{(?::(?P<format>0?[0-9]{0,2}d?))?\}")  # `{}` or `{:05d}`, which the number of a file replaces


def write_files(
    shards: Shards,
    on_error: OnError,
    account: Account,
    path: Paths,
    record_to_example: Callable[[Record], Any],
    max_shard_size: int | str | None = None,
) -> list[str]:
    """Write every record as a tf.train.Example to files of at most `max_shard_size`; return the files."""
    selection = declared_fields(record_to_example)
    if selection is not None and shards.selection is None:
        shards = replace(shards, selection=selection)
    job = ExportJob(shards, on_error, SingleRoute((_SPLIT,)), Serializer(TFRECORD, record_to_example))

    def batches() -> Generator[EncodedBatch]:
        for at, name in enumerate(shards.names):
            for event in read_shard(job, at, name, [(0, 0)]):
                if isinstance(event, EncodedBatch):
                    yield event
                else:
                    account.merge(event.stats)

    return _write(path, batches(), max_shard_size)


def write_payloads(path: Paths, payloads: Iterable[bytes], max_shard_size: int | str | None = None) -> list[str]:
    """Write serialized tf.train.Examples to files of at most `max_shard_size`; return the files."""

    def batches() -> Generator[EncodedBatch]:
        begin = 0
        for batch in payload_batches(payloads):
            yield EncodedBatch.from_payloads(batch, TFRECORD, begin)
            begin += len(batch)

    return _write(path, batches(), max_shard_size)


def _write(path: Paths, batches: Generator[EncodedBatch], max_shard_size: int | str | None) -> list[str]:
    names = _FileNames(path)
    names.writable_path(0)
    bounds = bounds_of(max_shard_size, None)
    with contextlib.closing(batches), _work_folder(names.path(0)) as work:
        with SplitWriters([_SPLIT], TFRECORD, bounds, work) as writers:
            for batch in batches:
                writers.add(batch)
            writers.finish()
        return _publish(names, work)


def _publish(names: _FileNames, work: WorkFolder) -> list[str]:
    """Rename all finished files, and delete surplus files of an earlier run that wrote more files."""
    parts = [work.path / file.part for file in sorted(work.files, key=lambda file: file.number)]
    if not parts and not names.several:  # there was no record, and the user named one file
        parts = [work.path / "empty"]
        parts[0].touch()
    names.set_total(len(parts))
    targets = [names.writable_path(number) for number in range(len(parts))]
    for part, target in zip(parts, targets, strict=True):
        part.replace(target)
    for stale in names.stale_files(len(parts)):
        stale.unlink()
    for folder in {target.parent for target in targets}:
        sync(folder)
    return [os.fspath(names.named[number]) for number in range(len(parts))]


class _FileNames:
    """The paths of the files, in the order of their numbers, as the user's `path=` gives them."""

    def __init__(self, path: Paths) -> None:
        self.named: list[str | os.PathLike[str]] = []  # the paths used so far
        self._text = None if callable(path) else location_text(path)
        self.several: bool = self._text is None or _PLACE.search(self._text) is not None
        self._source: Iterator[Any] = iter(path()) if callable(path) else self._from_text(location_text(path))

    def _from_text(self, text: str) -> Iterator[str]:
        if not self.several:
            yield text
            return
        for number in count():
            yield _PLACE.sub(lambda place: format(number, place["format"] or "d"), text)  # noqa: B023

    def set_total(self, total: int) -> None:
        """Add numbers to the names if the user gave one path and there are several files."""
        if self._text is not None and not self.several and total > 1:
            self.named = [f"{self._text}-{number:05d}-of-{total:05d}" for number in range(total)]

    def path(self, number: int) -> Path:
        """Return the path of the file with this number."""
        while len(self.named) <= number:
            try:
                self.named.append(next(self._source))
            except StopIteration:
                begin = self.named[0] if self.named else "path="
                raise ExportError(f"{begin}: the names for the files end too early") from None
        return Path(self.named[number])

    def writable_path(self, number: int) -> Path:
        """Return the path of the file with this number; raise ExportError if no file can be written there."""
        path = self.path(number)
        if not path.parent.is_dir():
            raise ExportError(f"{path}: nothing can be written there (there is no folder {os.fspath(path.parent)!r})")
        if path.is_dir():
            raise ExportError(f"{path}: nothing can be written there (it is a folder)")
        if path.exists() and not path.is_file():  # a rename would replace a device by a file
            raise ExportError(f"{path}: nothing can be written there (it is a device or a pipe)")
        return path

    def stale_files(self, total: int) -> Iterator[Path]:
        """Yield the files of an earlier run that are not among the `total` files of this run."""
        if self._text is None:
            return
        if not self.several:
            yield from self._stale_numbered_files(Path(self._text), total)
            return
        while self.path(total).is_file():  # up to the first gap
            yield self.path(total)
            total += 1

    def _stale_numbered_files(self, first: Path, total: int) -> Iterator[Path]:
        ours = re.compile(rf"{re.escape(first.name)}(-\d{{5,}}-of-\d{{5,}})?")
        written = {Path(name).name for name in self.named[:total]}
        for entry in sorted(os.scandir(first.parent), key=lambda entry: entry.name):
            if ours.fullmatch(entry.name) and entry.name not in written and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


@contextlib.contextmanager
def _work_folder(first: Path) -> Generator[WorkFolder]:
    """Open a hidden work folder next to the first file, on the same file system; delete it at the end."""
    name = first.name.replace("{", "").replace("}", "")
    with raise_export_errors(first):
        work = WorkFolder(first.parent / f".{name}.part", {}, start_over=True)
        try:
            yield work
        finally:
            work.remove()
            work.close()
