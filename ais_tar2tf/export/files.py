"""`path=`: TFRecord files under names that the user gives, replaced together when all are written; no manifest."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.export.boundaries import bounds_of
from ais_tar2tf.export.framing import frame
from ais_tar2tf.export.parts import SplitWriter, Syncer
from ais_tar2tf.export.serializers import Serializer
from ais_tar2tf.export.shard_units import Job, Units, read_shard
from ais_tar2tf.export.splits import Single
from ais_tar2tf.export.work import WorkFolder
from ais_tar2tf.locations import location_text
from ais_tar2tf.mapping import wants
from ais_tar2tf.options import MIB
from ais_tar2tf.owned import sync
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Record

__all__ = ["Paths", "write_files", "write_payloads", "write_tfrecord"]

Paths = str | os.PathLike[str] | Callable[[], Iterable[str]]
"""A file, a template (`train-{}.record`, `train-{:05d}.record`; numbers from 0), or a function that gives names.

Where a bound makes several files of one that was named, they are `train.record-00000-of-00003` and so on.
"""

_SPLIT = "file"
_PLACE = re.compile(r"\{(?::(?P<format>0?[0-9]{0,2}d?))?\}")  # `{}` or `{:05d}`, where the number of a file goes
_NO_IDENTITY = ("", "", "", None)


def write_files(
    shards: Shards,
    on_error: OnError,
    account: Account,
    path: Paths,
    record_to_example: Callable[[Record], Any],
    max_shard_size: int | str | None = None,
) -> list[str]:
    """The Examples of every record, in files of at most `max_shard_size`; gives the files."""
    selection = wants(record_to_example)
    if selection is not None and shards.selection is None:
        shards = replace(shards, selection=selection)
    job = Job(shards, on_error, Single((_SPLIT,)), Serializer("tfrecord", record_to_example))

    def units() -> Generator[Units]:
        for at, name in enumerate(shards.names):
            for event in read_shard(job, at, name, [(0, 0)]):
                if isinstance(event, Units):
                    yield event
                else:
                    account.merge(event.stats)

    return _write(path, units(), max_shard_size)


def write_tfrecord(path: str | os.PathLike[str], payloads: Iterable[bytes]) -> int:
    """Write `payloads` as one TFRecord file, replacing it only when all is written; gives their number."""
    written = 0

    def counted() -> Iterator[bytes]:
        nonlocal written
        for written, payload in enumerate(payloads, 1):  # noqa: B007  # what counts is the last one
            yield payload

    write_payloads(path, counted())
    return written


def write_payloads(path: Paths, payloads: Iterable[bytes], max_shard_size: int | str | None = None) -> list[str]:
    """As `write_files`, of serialized Examples."""

    def units() -> Generator[Units]:
        for begin, frames in _batches(map(frame, payloads)):
            numbers = range(begin, begin + len(frames))
            yield Units(0, 0, numbers, list(map(len, frames)), [(each,) for each in frames], _NO_IDENTITY)

    return _write(path, units(), max_shard_size)


def _batches(frames: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first, frames) of about a megabyte each."""
    batch: list[bytes] = []
    size = begin = 0
    for each in frames:
        batch.append(each)
        size += len(each)
        if size >= MIB:
            yield begin, batch
            begin += len(batch)
            batch, size = [], 0
    if batch:
        yield begin, batch


def _write(path: Paths, units: Generator[Units], max_shard_size: int | str | None) -> list[str]:
    names = _Names(path)
    names.check(0)
    bounds = bounds_of(max_shard_size, None)
    with contextlib.closing(units), _work(names.path(0)) as work:
        syncer = Syncer(work)
        writer = SplitWriter(_SPLIT, "tfrecord", bounds, work, syncer)
        try:
            for each in units:
                writer.add(each)
            writer.close_file()
            syncer.finish()
        finally:
            writer.abandon()
            syncer.close()
        return _replace(names, work)


def _replace(names: _Names, work: WorkFolder) -> list[str]:
    """All files at once get their names; those that an earlier run wrote behind them go."""
    parts = [work.path / file.part for file in sorted(work.files, key=lambda file: file.number)]
    if not parts and not names.many:  # no record: the one file that was asked for is empty
        parts = [work.path / "empty"]
        parts[0].touch()
    names.settle(len(parts))
    targets = [names.check(number) for number in range(len(parts))]
    for part, target in zip(parts, targets, strict=True):
        part.replace(target)
    for stale in names.stale(len(parts)):
        stale.unlink()
    for folder in {target.parent for target in targets}:
        sync(folder)
    return [os.fspath(names.named[number]) for number in range(len(parts))]


class _Names:
    """The paths of files by number."""

    def __init__(self, path: Paths) -> None:
        self.named: list[str | os.PathLike[str]] = []
        self._template = None if callable(path) else location_text(path)
        self.many: bool = callable(path) or _PLACE.search(location_text(path)) is not None
        self._source: Iterator[Any] = iter(path()) if callable(path) else self._from_text(location_text(path))

    def _from_text(self, text: str) -> Iterator[str]:
        if not self.many:
            yield text
            return
        for number in count():
            yield _PLACE.sub(lambda place: format(number, place["format"] or "d"), text)  # noqa: B023

    def settle(self, total: int) -> None:
        """Give each file a name of its own, where one name is given for several."""
        if self._template is not None and not self.many and total > 1:
            self.named = [f"{self._template}-{number:05d}-of-{total:05d}" for number in range(total)]

    def path(self, number: int) -> Path:
        while len(self.named) <= number:
            try:
                self.named.append(next(self._source))
            except StopIteration:
                begin = self.named[0] if self.named else "path="
                raise ExportError(f"{begin}: the names for the files end too early") from None
        return Path(self.named[number])

    def check(self, number: int) -> Path:
        """The path, if a file can stand there."""
        path = self.path(number)
        if not path.parent.is_dir():
            raise ExportError(f"{path}: nothing can be written there (there is no folder {os.fspath(path.parent)!r})")
        if path.is_dir():
            raise ExportError(f"{path}: nothing can be written there (it is a folder)")
        if path.exists() and not path.is_file():  # a rename would replace a device by a file
            raise ExportError(f"{path}: nothing can be written there (it is a device or a pipe)")
        return path

    def stale(self, total: int) -> Iterator[Path]:
        """Files of an earlier run that had another number of files."""
        if self._template is None:
            return
        if not self.many:
            yield from self._numbered_otherwise(Path(self._template), total)
            return
        while self.path(total).is_file():  # without a gap
            yield self.path(total)
            total += 1

    def _numbered_otherwise(self, first: Path, total: int) -> Iterator[Path]:
        ours = re.compile(rf"{re.escape(first.name)}(-\d{{5,}}-of-\d{{5,}})?")
        written = {Path(name).name for name in self.named[:total]}
        for entry in sorted(os.scandir(first.parent), key=lambda entry: entry.name):
            if ours.fullmatch(entry.name) and entry.name not in written and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


@contextlib.contextmanager
def _work(first: Path) -> Generator[WorkFolder]:
    """A hidden folder beside the first file: on its file system, and emptied when the same is written again."""
    name = first.name.replace("{", "").replace("}", "")
    try:
        work = WorkFolder(first.parent / f".{name}.part", {}, start_over=True)
        try:
            yield work
        finally:
            work.remove()
            work.close()
    except OSError as error:
        if isinstance(error, Tar2TFError):  # of the source: some of ours are OSErrors, too
            raise
        raise ExportError(f"{first}: writing failed ({error.strerror or error})") from error
