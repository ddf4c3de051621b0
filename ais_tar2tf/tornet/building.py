"""Writes the record files of the data set TorNet in several processes. A `Task` describes each file.

Finished files are kept, so that a second run continues after an interruption. The contents of the files depend
only on the tasks, and must not depend on the number of workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Pipe, wait
from typing import Any

from ais_tar2tf.base.documents.folders import Layout
from ais_tar2tf.base.monitoring.progress import Progress
from ais_tar2tf.errors import ExportError
from ais_tar2tf.tornet.record_file import Task, write

__all__ = ["SAMPLES_PER_FILE", "WORK", "build"]

WORK = Layout(
    re.compile("(?!)"),  # matches no name: no file is directly in the build folder
    ((re.compile("[0-9a-f]{16}"), Layout(re.compile(r"[\w.-]+-\d{5}-of-\d{5}(\.json)?|\.[\w.-]+\.\d+"))),),
)
"""The layout of a build folder. It has a folder for each split, named by a hash of the samples and the options, with
record files, their summaries and unfinished files.
"""

SAMPLES_PER_FILE = {"zlib": 128, "bytes": 32, "none": 32}
"""The number of samples in a record file, by the encoding of the radar variables.

With these numbers, a file has about 100 MB ("zlib") or 200 MB ("bytes" and "none"). So there are enough files to keep
all cores busy, and each file is large enough to be read and written at full speed.
"""

_END_SECONDS = 10  # how long a terminated worker may take to end before it is killed


def build(tasks: Iterable[Task], workers: int, progress: Progress) -> None:
    """Write the files that are not finished, in up to `workers` processes.

    If `workers` is 1, or only one file is not finished, this process writes the files itself. The first error ends
    the run. Files that were finished before the error are kept.
    """
    unfinished: list[Task] = []
    with progress:
        for task in tasks:
            if task.is_finished:
                progress.add(len(task.files), task.payload_bytes)
                progress.add_shard()
            else:
                unfinished.append(task)
        if min(workers, len(unfinished)) > 1:
            _in_processes(unfinished, min(workers, len(unfinished)), progress)
            return
        for task in unfinished:
            write(task, lambda size: progress.add(1, size))
            progress.add_shard()


class _Worker:
    """A worker process and the pipe to it."""

    def __init__(self) -> None:
        self.pipe: Any
        self.pipe, worker_end = Pipe()
        try:
            command = [sys.executable, "-m", "ais_tar2tf.tornet.worker", str(worker_end.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(  # noqa: S603  # this Python runs a module of this package
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(worker_end.fileno(),)
            )
        except BaseException:
            self.pipe.close()
            raise
        finally:
            worker_end.close()

    def send(self, task: Task) -> None:
        try:
            self.pipe.send(task)
        except OSError as error:
            raise _worker_died(error) from error

    def receive(self) -> Any:
        """Return the next message of the worker. If this message is an exception, raise the exception."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise _worker_died(error) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.pipe.close()
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _in_processes(tasks: Sequence[Task], number: int, progress: Progress) -> None:
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker() for _ in range(number))
        _distribute(tasks, workers, progress)
    finally:
        for worker in workers:
            worker.close()


def _distribute(tasks: Sequence[Task], workers: Sequence[_Worker], progress: Progress) -> None:
    """Give each worker a task. Whenever a worker has finished a task, give it the next task, until all are finished.

    A worker sends the size of each sample that it has written, and None at the end of a task.
    """
    remaining = iter(tasks)
    busy: dict[Any, _Worker] = {}
    # `workers` comes first: otherwise zip would take a task for which there is no worker, and lose it.
    for worker, task in zip(workers, remaining, strict=False):
        worker.send(task)
        busy[worker.pipe] = worker
    while busy:
        for pipe in wait(list(busy)):
            worker = busy[pipe]
            size = worker.receive()
            if size is not None:
                progress.add(1, size)
                continue
            progress.add_shard()
            task = next(remaining, None)
            if task is None:
                del busy[pipe]
            else:
                worker.send(task)


def _worker_died(error: Exception) -> ExportError:
    return ExportError(f"a worker process ended by itself ({error!r}): was memory short? Its own words are above")
