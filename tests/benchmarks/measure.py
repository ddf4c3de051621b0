"""Measure in new processes, ours and the peer's alternately, so that other load affects both."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.web import NotAvailable

__all__ = ["Best", "alternate", "endless_shard", "import_seconds", "run"]

_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]
_MAX_SECONDS = 600


@dataclass(frozen=True)
class Best:
    """The wall-clock seconds of the fastest pass, and the CPU seconds of the same pass."""

    wall: float
    cpu: float


def alternate(tasks: Sequence[Mapping[str, Any]], rounds: int) -> list[Best]:
    """Run all tasks `rounds` times, in turn, and return the best pass of each task."""
    found: list[list[Best]] = [[] for _ in tasks]
    for _ in range(rounds):
        for each, task in zip(found, tasks, strict=True):
            answer = run("time", task)
            each.append(Best(answer["wall"], answer["cpu"]))
    return [min(each, key=lambda best: best.wall) for each in found]


def run(measurement: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Run `_run` in a new process and return its result."""
    return json.loads(_python("-m", "tests.benchmarks._run", measurement, stdin=json.dumps(task)))


def import_seconds(modules: Sequence[str], rounds: int) -> list[float]:
    """Return the seconds that each import adds to Python's start, as the best of `rounds`."""
    statements = ["pass", *(f"import {module}" for module in modules)]
    best = [float("inf")] * len(statements)
    for _ in range(rounds):
        for index, statement in enumerate(statements):
            began = time.perf_counter()
            _python("-c", statement)
            best[index] = min(best[index], time.perf_counter() - began)
    bare, *others = best
    return [max(1e-4, each - bare) for each in others]


def _python(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        missing = _MISSING.search(done.stderr)
        if missing:
            raise NotAvailable(f"there is no package {missing[1]!r}: pip install -e '.[bench]'")
        raise RuntimeError(f"{' '.join(arguments)}\nended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return our environment with proxies bypassed for this machine, and without TensorFlow's log."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


@contextmanager
def endless_shard(size: int, counter: Path) -> Iterator[str]:
    """Serve a shard of `size` bytes and return its URL. The file `counter` holds the number of sent bytes."""
    command = [sys.executable, "-m", "tests.benchmarks.endless", str(size), str(counter)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/endless.tar"
        finally:
            process.terminate()
