"""The main program of a worker process, which reads input shards and writes segment files of encoded records.

The command is `python -m ais_tar2tf.recordfiles.export.worker DESCRIPTOR FOLDER`. DESCRIPTOR is the file descriptor
of a pipe to the parent process; FOLDER gets the segment files. A worker is a new process rather than a fork, because
its parent has threads and may have loaded TensorFlow. The worker ends when the parent closes the pipe or ends.

The parent sends the job, and then one shard at a time. The worker answers with events. After each segment, the worker
waits for a message from the parent. This message lists the segment files that the worker may overwrite.

A worker must not write record files: the parent makes them from the segments.
"""

from __future__ import annotations

import signal
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.recordfiles.export.journal import NO_IDENTITY, ResumePoint
from ais_tar2tf.recordfiles.export.shard_output import (
    EncodedBatch,
    Event,
    ExportJob,
    PortableJob,
    ShardRead,
    read_shard,
)
from ais_tar2tf.recordfiles.formats.byte_files import PiecesFile

__all__ = ["main"]


class _Segment:
    """A segment: a file of encoded records of one input shard and one split."""

    def __init__(self, path: Path, at: int, split: int, *, overwrite: bool) -> None:
        self._path = path
        self._at = at
        self._split = split
        self._file = PiecesFile(path, overwrite=overwrite, hashed=False)
        self._numbers, self._sizes = array("Q"), array("Q")
        self._identity = NO_IDENTITY
        self.bytes: int = 0

    def add(self, batch: EncodedBatch) -> None:
        """Append the records of a batch."""
        assert not isinstance(batch.data, Path | memoryview)
        self._file.write(list(chain.from_iterable(batch.data)))
        self._numbers.extend(batch.numbers)
        self._sizes.extend(batch.sizes)
        self._identity = batch.identity
        self.bytes += sum(batch.sizes)

    def close(self) -> EncodedBatch:
        """Close the file and return a batch that refers to it by its path."""
        self._file.close()
        return EncodedBatch(self._at, self._split, self._numbers, self._sizes, self._path, self._identity)


def main() -> None:
    """Serve the parent process until it has no more work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles the signal and ends its workers
    pipe, folder = Connection(int(sys.argv[1])), Path(sys.argv[2])
    try:
        portable, segment_bytes = pipe.recv()
        _serve(portable, segment_bytes, pipe, folder)
    except (EOFError, ConnectionError):
        return  # the parent is gone, or has no more work


def _serve(portable: PortableJob, segment_bytes: int, pipe: Connection[Any, Any], folder: Path) -> None:
    job = portable.open()
    reusable: list[Path] = []  # segment files; overwriting them costs less memory than making new files
    while True:
        at, name, resume_at = pipe.recv()
        try:
            for event in _segments(job, at, name, resume_at, segment_bytes, folder, reusable):
                pipe.send(event)
                if isinstance(event, EncodedBatch):
                    reusable.extend(pipe.recv())  # blocks until the parent has room for another segment
        except Tar2TFError as error:
            pipe.send(error)
        except (EOFError, ConnectionError):
            raise
        except OSError as error:
            pipe.send(
                ExportError(f"{folder.parent.parent}: a segment could not be written ({error.strerror or error})")
            )
        except Exception as error:  # noqa: BLE001  # the parent raises the error
            pipe.send(ExportError(f"{name}: {type(error).__name__}: {error}"))


def _segments(
    job: ExportJob,
    at: int,
    name: str,
    resume_at: Sequence[ResumePoint],
    segment_bytes: int,
    folder: Path,
    reusable: list[Path],
) -> Iterator[Event]:
    """Yield the events of a shard. Its records are collected into one segment at a time for each split."""
    open_segments: dict[int, _Segment] = {}
    count = 0
    for event in read_shard(job, at, name, resume_at):
        if isinstance(event, ShardRead):
            for split in sorted(open_segments):
                yield open_segments.pop(split).close()
            yield event
            return
        segment = open_segments.get(event.split)
        if segment is None:
            path = reusable.pop() if reusable else folder / f"{at:07d}-{count}.segment"
            segment = open_segments[event.split] = _Segment(path, at, event.split, overwrite=path.exists())
            count += 1
        segment.add(event)
        if segment.bytes >= segment_bytes:
            yield open_segments.pop(event.split).close()


if __name__ == "__main__":
    main()
