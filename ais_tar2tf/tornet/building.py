"""Writing TorNet's record files in several processes. A file that is finished stays, so a second run goes on.

What is in which file depends on the samples alone, never on the number of workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Pipe, wait
from typing import Any

from ais_tar2tf.errors import ExportError
from ais_tar2tf.owned import Layout
from ais_tar2tf.progress import Progress
from ais_tar2tf.tornet.record_file import Task, write

__all__ = ["SAMPLES_PER_FILE", "WORK", "build"]

WORK = Layout(
    re.compile("(?!)"),
    ((re.compile("[0-9a-f]{16}"), Layout(re.compile(r"[\w.-]+-\d{5}-of-\d{5}(\.json)?|\.[\w.-]+\.\d+"))),),
)
"""What the folder of a build holds: a folder for each plan, of record files, their accounts and unfinished ones."""

SAMPLES_PER_FILE = {"zlib": 128, "bytes": 32, "none": 32}
"""Files of some 100 and 200 MB: small enough for every core to have one, large enough to be read at full speed."""

_ENDING = 10  # seconds that a worker has to end after it was told to


def build(tasks: Iterable[Task], workers: int, progress: Progress) -> None:
    """Write what is not finished yet; the first error ends the run and leaves the finished files."""
    left: list[Task] = []
    with progress:
        for task in tasks:
            if task.finished:
                progress.add(len(task.files), task.payload_bytes)
                progress.shard()
            else:
                left.append(task)
        if min(workers, len(left)) > 1:
            _in_processes(left, min(workers, len(left)), progress)
            return
        for task in left:
            write(task, lambda size: progress.add(1, size))
            progress.shard()


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self) -> None:
        self.pipe: Any
        self.pipe, theirs = Pipe()
        try:
            command = [sys.executable, "-m", "ais_tar2tf.tornet.worker", str(theirs.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(  # noqa: S603  # our own module, by this very Python
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        finally:
            theirs.close()

    def give(self, task: Task) -> None:
        try:
            self.pipe.send(task)
        except OSError as error:
            raise _ended(error) from error

    def answer(self) -> Any:
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise _ended(error) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.pipe.close()
        self._process.terminate()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _in_processes(tasks: Sequence[Task], number: int, progress: Progress) -> None:
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker() for _ in range(number))
        _hand_out(tasks, workers, progress)
    finally:
        for worker in workers:
            worker.close()


def _hand_out(tasks: Sequence[Task], workers: Sequence[_Worker], progress: Progress) -> None:
    rest = iter(tasks)
    busy: dict[Any, _Worker] = {}
    for worker, task in zip(workers, rest, strict=False):  # workers first: zip takes no task that nobody gets
        worker.give(task)
        busy[worker.pipe] = worker
    while busy:
        for pipe in wait(list(busy)):
            worker = busy[pipe]
            size = worker.answer()
            if size is not None:
                progress.add(1, size)
                continue
            progress.shard()
            task = next(rest, None)
            if task is None:
                del busy[pipe]
            else:
                worker.give(task)


def _ended(error: Exception) -> ExportError:
    return ExportError(f"a worker process ended by itself ({error!r}): was memory short? Its own words are above")
