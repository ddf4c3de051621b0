"""Worker processes, and their segments in the order of the input shards, whoever made them and when."""

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
from ais_tar2tf.export.shard_units import Event, Job, PortableJob, ShardRead, Units
from ais_tar2tf.export.work import Place
from ais_tar2tf.options import Writing
from ais_tar2tf.stores import reopener

__all__ = ["WorkerPool", "portable"]


def portable(job: Job) -> PortableJob | None:
    """The job in a form that another process can take; None where there is none.

    What lives in this process alone stays here: memory://, functions of the main script, lambdas.
    """
    reopen = reopener(job.shards.store)
    if reopen is None:
        return None
    shards = job.shards
    moved = PortableJob(
        reopen, shards.read, shards.grouping, shards.selection, job.on_error, job.route, job.serializer
    )
    try:
        data = pickle.dumps(moved)
    except Exception:  # noqa: BLE001  # pickle raises whatever objects make it raise
        return None
    return None if b"\x8c\x08__main__" in data else moved


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, job: PortableJob, segment_bytes: int, folder: Path) -> None:
        ours, theirs = Pipe()
        self.pipe: Connection[Any, Any] = ours  # type: ignore[assignment]  # of the two kinds it is this one
        try:
            command = [sys.executable, "-m", "ais_tar2tf.export.worker", str(theirs.fileno()), str(folder)]
            environment = {
                "OPENBLAS_NUM_THREADS": "1",  # the processes are the threads; numpy would begin some in each
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            }
            self._process = subprocess.Popen(  # noqa: S603  # our own module, by this very Python
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        finally:
            theirs.close()
        self.at: int = -1  # the shard that it is at; -1: none
        self.waits: bool = False  # for room
        with contextlib.suppress(OSError):  # a process that ended at once is noticed when it should answer
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
    """Reads `names[start:]`. Segments that wait for their turn are bounded: only the first shard's worker goes on."""

    def __init__(
        self, job: PortableJob, names: Sequence[str], done: Sequence[Place], workers: int, work: Path, how: Writing
    ) -> None:
        self._names = names
        self._done = done
        self._front = min(place[0] for place in done)
        self._next = self._front
        self._how = how
        self._queues: dict[int, deque[Event | Exception]] = {}
        self._held = 0
        self._spare: list[Path] = []
        self._folder = Path(tempfile.mkdtemp(prefix="segments-", dir=work))
        count = max(1, min(workers, len(names) - self._front))
        self._workers = [_Worker(job, how.segment_bytes, self._folder) for _ in range(count)]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def events(self) -> Iterator[Event]:
        while self._front < len(self._names):
            self._hand_out()
            queue = self._queues.get(self._front)
            if not queue:
                self._receive()
                continue
            event = queue.popleft()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, ShardRead):
                del self._queues[self._front]
                self._front += 1
                yield event
            else:
                yield from self._mapped(event)

    def _mapped(self, event: Units) -> Iterator[Event]:
        """A segment's units with its bytes in reach, as long as the caller is at them; then it is written over."""
        assert isinstance(event.data, Path)
        size = sum(event.sizes)
        with event.data.open("rb") as file:
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        view = memoryview(data)
        try:
            yield replace(event, data=view)
        finally:
            with contextlib.suppress(BufferError):  # behind a failure its traceback may hold pieces; they end with it
                view.release()
                data.close()
        self._held -= size
        if len(self._spare) < len(self._workers):
            self._spare.append(event.data)
        else:
            event.data.unlink()

    def _hand_out(self) -> None:
        """Work for who has none, and room for who waits for it."""
        for worker in self._workers:
            has_room = self._held < self._how.waiting_bytes
            if worker.waits and (has_room or worker.at == self._front):
                worker.waits = False
                self._send(worker, [self._spare.pop()] if self._spare else [])
            if worker.at < 0 and self._next < len(self._names) and (has_room or self._next == self._front):
                worker.at = self._next
                self._queues[self._next] = deque()
                self._next += 1
                self._send(worker, (worker.at, self._names[worker.at], self._done))

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            worker.pipe.send(message)
        except OSError as error:
            raise _ended(error) from error

    def _receive(self) -> None:
        busy = {worker.pipe: worker for worker in self._workers if worker.at >= 0}
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            try:
                event: Event | Exception = worker.pipe.recv()
            except (EOFError, OSError) as error:
                raise _ended(error) from error
            self._queues[worker.at].append(event)
            if isinstance(event, Units):
                worker.waits = True
                self._held += sum(event.sizes)
            else:
                worker.at = -1


def _ended(error: Exception) -> ExportError:
    return ExportError(f"a worker process ended by itself ({error!r}): was memory short? Its own words are above")
