"""A worker process: input shards in, segment files out. `python -m ais_tar2tf.export.worker DESCRIPTOR FOLDER`.

A process of its own rather than a fork: the parent has threads, and may have TensorFlow. It ends with its parent,
for then its pipe does.
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
from ais_tar2tf.export.formats import PiecesFile
from ais_tar2tf.export.shard_units import Event, Job, PortableJob, ShardRead, Units, read_shard
from ais_tar2tf.export.work import Identified, Place

__all__ = ["main"]


class _Segment:
    """Units of one split that are collected in a file."""

    def __init__(self, path: Path, at: int, split: int, *, again: bool) -> None:
        self._path = path
        self._at = at
        self._split = split
        self._file = PiecesFile(path, again=again, summed=False)
        self._numbers, self._sizes = array("Q"), array("Q")
        self._identity: Identified = ("", "", "", None)
        self.bytes: int = 0

    def add(self, units: Units) -> None:
        assert not isinstance(units.data, Path | memoryview)
        self._file.write(list(chain.from_iterable(units.data)))
        self._numbers.extend(units.numbers)
        self._sizes.extend(units.sizes)
        self._identity = units.identity
        self.bytes += sum(units.sizes)

    def close(self) -> Units:
        self._file.close()
        return Units(self._at, self._split, self._numbers, self._sizes, self._path, self._identity)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends us
    pipe, folder = Connection(int(sys.argv[1])), Path(sys.argv[2])
    try:
        portable, segment_bytes = pipe.recv()
        _work(portable, segment_bytes, pipe, folder)
    except (EOFError, ConnectionError):
        return  # the parent is gone, or has no more work


def _work(portable: PortableJob, segment_bytes: int, pipe: Connection[Any, Any], folder: Path) -> None:
    job = portable.open()
    spare: list[Path] = []  # segments that may be written over: their pages are there already
    while True:
        at, name, done = pipe.recv()
        try:
            for event in _segments(job, at, name, done, segment_bytes, folder, spare):
                pipe.send(event)
                if isinstance(event, Units):
                    spare.extend(
                        pipe.recv()
                    )  # the parent says when there is room for more, and what it has done with
        except Tar2TFError as error:
            pipe.send(error)
        except (EOFError, ConnectionError):
            raise
        except OSError as error:
            pipe.send(
                ExportError(f"{folder.parent.parent}: a segment could not be written ({error.strerror or error})")
            )
        except Exception as error:  # noqa: BLE001  # the parent raises it
            pipe.send(ExportError(f"{name}: {type(error).__name__}: {error}"))


def _segments(
    job: Job, at: int, name: str, done: Sequence[Place], segment_bytes: int, folder: Path, spare: list[Path]
) -> Iterator[Event]:
    """The events of a shard, with its units collected into segments, one split's after another's."""
    open_segments: dict[int, _Segment] = {}
    made = 0
    for event in read_shard(job, at, name, done):
        if isinstance(event, ShardRead):
            for split in sorted(open_segments):
                yield open_segments.pop(split).close()
            yield event
            return
        segment = open_segments.get(event.split)
        if segment is None:
            path = spare.pop() if spare else folder / f"{at:07d}-{made}.segment"
            segment = open_segments[event.split] = _Segment(path, at, event.split, again=path.exists())
            made += 1
        segment.add(event)
        if segment.bytes >= segment_bytes:
            yield open_segments.pop(event.split).close()


if __name__ == "__main__":
    main()
