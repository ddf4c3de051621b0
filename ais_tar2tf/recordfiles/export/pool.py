"""A pool of worker processes that encode the input shards of an export.

An *event* is a batch of encoded records, or the end of a shard (`shard_output.py`). The pool yields the events of the
workers in the order of the shards. The pool must not write record files: its caller does so.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ExportError
from ais_tar2tf.options import Writing
from ais_tar2tf.recordfiles.export.journal import ResumePoint
from ais_tar2tf.recordfiles.export.shard_output import EncodedBatch, Event, ExportJob, PortableJob, ShardRead
from ais_tar2tf.stores import opener_of

__all__ = ["WorkerPool", "portable"]


def portable(job: ExportJob) -> PortableJob | None:
    """Return the job in a form that can be sent to another process, or None if the job cannot be sent.

    A job cannot be sent if it has a memory:// store, a function of the main script, or a lambda.
    """
    reopen = opener_of(job.shards.store)
    if reopen is None:
        return None
    shards = job.shards
    moved = PortableJob(
        reopen, shards.read, shards.grouping, shards.selection, job.on_error, job.route, job.serializer
    )
    try:
        data = pickle.dumps(moved)
    except Exception:  # noqa: BLE001  # pickle calls methods of the objects, which may raise any error
        return None
    return None if b"\x8c\x08__main__" in data else moved


class _WorkerProcess:
    """A worker process, and the pipe to it."""

    def __init__(self, job: PortableJob, segment_bytes: int, folder: Path) -> None:
        ours, theirs = Pipe()
        self.pipe: Connection[Any, Any] = ours  # type: ignore[assignment]  # a Connection, except on Windows
        try:
            command = [
                sys.executable,
                "-m",
                "ais_tar2tf.recordfiles.export.worker",
                str(theirs.fileno()),
                str(folder),
            ]
            environment = {
                "OPENBLAS_NUM_THREADS": "1",  # numpy shall start no threads: the workers keep all cores busy
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            }
            self._process = subprocess.Popen(  # noqa: S603  # a fixed command: our own module, run by this Python
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.at: int = -1  # the number of the shard that the worker reads; -1 if it is idle
        self.is_blocked: bool = False  # the worker has sent a segment, and waits for a message that lets it continue
        with contextlib.suppress(OSError):  # if the process ended at once, `_receive` raises the error
            self.pipe.send((job, segment_bytes))

    def close(self) -> None:
        self.pipe.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class WorkerPool:
    """Encodes input shards in worker processes.

    A worker writes encoded records to files, called segments. The segments of a shard wait until the events of all
    earlier shards were yielded. The *current* shard is the shard whose events are yielded next. If the waiting
    segments hold `writing.waiting_bytes` or more, only the worker that reads the current shard may continue.

    Args:
        job: The job that each worker does.
        names: The names of the input shards.
        resume_at: The resume point of each split.
        workers: The most worker processes. There are fewer if there are fewer shards to read.
        work: The work folder of the export.
        writing: The size of a segment, and the bound of the waiting segments.
    """

    def __init__(
        self,
        job: PortableJob,
        names: Sequence[str],
        resume_at: Sequence[ResumePoint],
        workers: int,
        work: Path,
        writing: Writing,
    ) -> None:
        self._names = names
        self._resume_at = resume_at
        self._current = min(point[0] for point in resume_at)
        self._next = self._current
        self._writing = writing
        self._queues: dict[int, deque[Event | Exception]] = {}
        self._waiting_bytes = 0
        self._reusable: list[Path] = []
        self._folder = Path(tempfile.mkdtemp(prefix="segments-", dir=work))
        count = max(1, min(workers, len(names) - self._current))
        self._workers: list[_WorkerProcess] = []
        try:
            for _ in range(count):
                self._workers.append(_WorkerProcess(job, writing.segment_bytes, self._folder))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes."""
        for worker in self._workers:
            worker.close()

    def events(self) -> Iterator[Event]:
        """Yield the events of all shards, in the order of the shards. A batch is valid until the next event."""
        while self._current < len(self._names):
            self._assign_work()
            queue = self._queues.get(self._current)
            if not queue:
                self._receive()
                continue
            event = queue.popleft()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, ShardRead):
                del self._queues[self._current]
                self._current += 1
                yield event
            else:
                yield from self._mapped_batch(event)

    def _mapped_batch(self, event: EncodedBatch) -> Iterator[Event]:
        """Yield a batch with its segment mapped into memory. Then let a worker reuse the file, or delete it."""
        assert isinstance(event.data, Path)
        size = sum(event.sizes)
        with event.data.open("rb") as file:
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        view = memoryview(data)
        try:
            yield replace(event, data=view)
        finally:
            with contextlib.suppress(BufferError):  # after an error, the traceback may still hold views of `data`
                view.release()
                data.close()
        self._waiting_bytes -= size
        if len(self._reusable) < len(self._workers):
            self._reusable.append(event.data)
        else:
            event.data.unlink()

    def _assign_work(self) -> None:
        """Give the next shard to each idle worker, and let blocked workers continue if there is room."""
        for worker in self._workers:
            has_room = self._waiting_bytes < self._writing.waiting_bytes
            if worker.is_blocked and (has_room or worker.at == self._current):
                worker.is_blocked = False
                self._send(worker, [self._reusable.pop()] if self._reusable else [])
            if worker.at < 0 and self._next < len(self._names) and (has_room or self._next == self._current):
                worker.at = self._next
                self._queues[self._next] = deque()
                self._next += 1
                self._send(worker, (worker.at, self._names[worker.at], self._resume_at))

    def _send(self, worker: _WorkerProcess, message: Any) -> None:
        try:
            worker.pipe.send(message)
        except OSError as error:
            raise _worker_ended(error) from error

    def _receive(self) -> None:
        """Wait until a busy worker sends an event or an error, and add it to the queue of the worker's shard."""
        busy = {worker.pipe: worker for worker in self._workers if worker.at >= 0}
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            try:
                event: Event | Exception = worker.pipe.recv()
            except (EOFError, OSError) as error:
                raise _worker_ended(error) from error
            self._queues[worker.at].append(event)
            if isinstance(event, EncodedBatch):
                worker.is_blocked = True
                self._waiting_bytes += sum(event.sizes)
            else:
                worker.at = -1


def _worker_ended(error: Exception) -> ExportError:
    return ExportError(f"a worker process ended by itself ({error!r}): was memory short? Its own words are above")
