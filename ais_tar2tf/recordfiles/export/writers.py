"""Writers of encoded records: one writer for each split, and a thread that syncs finished files to disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ais_tar2tf.base.documents.folders import sync
from ais_tar2tf.base.forking import at_fork
from ais_tar2tf.recordfiles.export.boundaries import Bounds, FillLevel
from ais_tar2tf.recordfiles.export.journal import FinishedFile, WorkFolder
from ais_tar2tf.recordfiles.export.shard_output import EncodedBatch
from ais_tar2tf.recordfiles.formats.base import RecordFileWriter, RecordFormat

__all__ = ["SplitWriters", "Syncer"]

_MAX_UNSYNCED = 4  # finished files that are not synced yet; when there are more, writing waits for the disk


class Syncer:
    """Syncs finished files to disk in a thread, and records them in the journal in order."""

    def __init__(self, work: WorkFolder) -> None:
        self._work = work
        self._pool = _thread()
        self._unsynced: deque[tuple[FinishedFile, Future[None]]] = deque()
        at_fork(self)

    def forked(self) -> None:
        """Replace the thread in a forked child, which does not inherit it."""
        self._pool = _thread()
        self._unsynced.clear()

    def add(self, file: FinishedFile) -> None:
        """Begin to sync a finished file."""
        self._unsynced.append((file, self._pool.submit(sync, self._work.path / file.part)))
        self._record_synced(_MAX_UNSYNCED)

    def finish(self) -> None:
        """Wait until every added file is synced and recorded."""
        self._record_synced(0)

    def _record_synced(self, max_unsynced: int) -> None:
        """Wait until at most `max_unsynced` files are not synced, then record the synced files."""
        while self._unsynced and (len(self._unsynced) > max_unsynced or self._unsynced[0][1].done()):
            file, synced = self._unsynced.popleft()
            synced.result()
            self._work.file_finished(file)

    def close(self) -> None:
        """End the thread. Files that are not synced yet are not recorded."""
        self._pool.shutdown(cancel_futures=True)


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="ais_tar2tf-sync")


class SplitWriters:
    """The writers of all splits of an export. A context manager, which closes unfinished files."""

    def __init__(self, splits: Sequence[str], record_format: RecordFormat, bounds: Bounds, work: WorkFolder) -> None:
        self._syncer = Syncer(work)
        self._writers = [_SplitFilesWriter(split, record_format, bounds, work, self._syncer) for split in splits]

    def add(self, batch: EncodedBatch) -> None:
        """Append the records of a batch to the files of its split."""
        self._writers[batch.split].add(batch)

    def close_files(self) -> None:
        """Complete the files that are being written. Each split continues with a new file."""
        for writer in self._writers:
            writer.close_file()

    def finish(self) -> None:
        """Complete all files, and wait until they are synced to disk and recorded in the journal."""
        self.close_files()
        self._syncer.finish()

    def __enter__(self) -> SplitWriters:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.abandon()
        self._syncer.close()


class _SplitFilesWriter:
    """Writes the files of one split, one after another, and gives finished files to a `Syncer`."""

    def __init__(
        self, split: str, record_format: RecordFormat, bounds: Bounds, work: WorkFolder, syncer: Syncer
    ) -> None:
        self._split = split
        self._format = record_format
        self._work = work
        self._syncer = syncer
        self._level = FillLevel(bounds)
        self._number = sum(file.split == split for file in work.files)
        self._writer: RecordFileWriter | None = None
        self._file: FinishedFile | None = None

    def add(self, batch: EncodedBatch) -> None:
        """Append the records of a batch, beginning new files at the boundaries."""
        assert not isinstance(batch.data, Path)  # the worker pool has mapped it
        begin = offset = 0
        while begin < len(batch.sizes):
            count = self._level.fill(batch.sizes, begin)
            if count == 0:
                self.close_file()
                continue
            sizes = batch.sizes[begin : begin + count]
            if type(batch.data) is memoryview:
                end = offset + sum(sizes)
                self._open_writer().append([batch.data[offset:end]], sizes)
                offset = end
            else:
                rows = batch.data[begin : begin + count]
                self._open_writer().append(list(chain.from_iterable(rows)), sizes)
            begin += count
            last = batch.numbers[begin - 1]
            self._file = FinishedFile(
                split=self._split,
                number=self._number,
                records=self._level.records,
                bytes=0,
                checksum="",
                end=(batch.at, last + 1),
                identity=batch.identity,
            )

    def _open_writer(self) -> RecordFileWriter:
        if self._writer is None:
            self._writer = self._format.open_writer(self._work.path / f"{self._split}-{self._number:05d}.part")
        return self._writer

    def close_file(self) -> None:
        """Complete the file that is being written, if there is one."""
        if self._writer is None or self._file is None:
            return
        checksum = self._writer.close()
        self._writer = None
        size = (self._work.path / self._file.part).stat().st_size
        self._syncer.add(replace(self._file, bytes=size, checksum=checksum))
        self._file = None
        self._number += 1
        self._level.begin_next_file()

    def abandon(self) -> None:
        """Close the file that is being written, without completing it."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
