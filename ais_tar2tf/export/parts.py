"""Units in, whole files out: one writer for each split, and the thread that brings finished files to disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from ais_tar2tf.export.boundaries import Boundaries, Bounds
from ais_tar2tf.export.formats import Part, new_part
from ais_tar2tf.export.raw import Row
from ais_tar2tf.export.shard_units import Units
from ais_tar2tf.export.work import FinishedFile, WorkFolder
from ais_tar2tf.forking import at_fork
from ais_tar2tf.owned import sync

__all__ = ["SplitWriter", "Syncer"]

_WAITING_FILES = 4  # finished and on their way to disk; more, and writing waits for the disk


class Syncer:
    """Syncs finished files while the next ones are written; tells the journal in their order."""

    def __init__(self, work: WorkFolder) -> None:
        self._work = work
        self._pool = _thread()
        self._waiting: deque[tuple[FinishedFile, Future[None]]] = deque()
        at_fork(self)

    def forked(self) -> None:
        """A child has no such thread, and would wait for it for ever."""
        self._pool = _thread()
        self._waiting.clear()

    def add(self, file: FinishedFile) -> None:
        self._waiting.append((file, self._pool.submit(sync, self._work.path / file.part)))
        self._settle(_WAITING_FILES)

    def finish(self) -> None:
        """All that was added is on disk."""
        self._settle(0)

    def _settle(self, most: int) -> None:
        while self._waiting and (len(self._waiting) > most or self._waiting[0][1].done()):
            file, synced = self._waiting.popleft()
            synced.result()
            self._work.file_finished(file)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="ais_tar2tf-sync")


class SplitWriter:
    """The files of one split, one after another; what is finished goes to the syncer."""

    def __init__(self, split: str, kind: str, bounds: Bounds, work: WorkFolder, syncer: Syncer) -> None:
        self._split = split
        self._kind = kind
        self._work = work
        self._syncer = syncer
        self._boundaries = Boundaries(bounds)
        self._number = sum(file.split == split for file in work.files)
        self._part: Part | None = None
        self._file: FinishedFile | None = None

    def add(self, units: Units) -> None:
        """Records behind those that came before."""
        assert not isinstance(units.data, Path)  # segments are mapped by whoever received them
        source = _Mapped(units.data) if type(units.data) is memoryview else _Rows(units.data)
        begin = 0
        while begin < len(units.sizes):
            count = self._boundaries.fitting(units.sizes, begin)
            if count == 0:
                self.close_file()
                continue
            sizes = units.sizes[begin : begin + count]
            part = self._open_part()
            source.copy(part, sizes)
            begin += count
            last = units.numbers[begin - 1]
            self._file = FinishedFile(
                split=self._split,
                number=self._number,
                records=self._boundaries.records,
                bytes=0,
                checksum="",
                end=(units.at, last + 1),
                identity=units.identity,
            )

    def _open_part(self) -> Part:
        if self._part is None:
            self._part = new_part(self._kind, self._work.path / f"{self._split}-{self._number:05d}.part")
        return self._part

    def close_file(self) -> None:
        """The file that is being filled, if there is one, is whole."""
        if self._part is None or self._file is None:
            return
        checksum = self._part.close()
        self._part = None
        size = (self._work.path / self._file.part).stat().st_size
        file = self._file
        self._syncer.add(
            FinishedFile(
                split=file.split,
                number=file.number,
                records=file.records,
                bytes=size,
                checksum=checksum,
                end=file.end,
                identity=file.identity,
            )
        )
        self._file = None
        self._number += 1
        self._boundaries.close()

    def abandon(self) -> None:
        if self._part is not None:
            self._part.abandon()
            self._part = None


class _Rows:
    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._at = 0

    def copy(self, part: Part, sizes: Sequence[int]) -> None:
        end = self._at + len(sizes)
        part.append(list(chain.from_iterable(self._rows[self._at : end])), sizes)
        self._at = end


class _Mapped:
    """A segment: its records are copied once, not made again."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def copy(self, part: Part, sizes: Sequence[int]) -> None:
        size = sum(sizes)
        part.append([self._rest[:size]], sizes)
        self._rest = self._rest[size:]
