"""Measurements in fresh processes, ours and the peer's in turns, so that neither sees a quieter machine."""

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

from tests.benchmarks.web import NotHere

__all__ = ["Best", "alternate", "endless_shard", "import_seconds", "run"]

_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]
_MOST_SECONDS = 600


@dataclass(frozen=True)
class Best:
    """The fastest pass: its seconds, and the CPU seconds of the same pass."""

    wall: float
    cpu: float


def alternate(tasks: Sequence[Mapping[str, Any]], rounds: int) -> list[Best]:
    """Each task's best of `rounds`; every round runs all of them, one after the other."""
    found: list[list[Best]] = [[] for _ in tasks]
    for _ in range(rounds):
        for each, task in zip(found, tasks, strict=True):
            answer = run("time", task)
            each.append(Best(answer["wall"], answer["cpu"]))
    return [min(each, key=lambda best: best.wall) for each in found]


def run(what: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """What `_run` answers, from a process of its own."""
    return json.loads(_python("-m", "tests.benchmarks._run", what, told=json.dumps(task)))


def import_seconds(modules: Sequence[str], rounds: int) -> list[float]:
    """What importing each costs beyond starting Python; best of `rounds`, in turns."""
    statements = ["pass", *(f"import {module}" for module in modules)]
    best = [float("inf")] * len(statements)
    for _ in range(rounds):
        for index, statement in enumerate(statements):
            began = time.perf_counter()
            _python("-c", statement)
            best[index] = min(best[index], time.perf_counter() - began)
    bare, *others = best
    return [max(1e-4, each - bare) for each in others]


def _python(*arguments: str, told: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(),
        input=told,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        check=False,
    )
    if done.returncode:
        missing = _MISSING.search(done.stderr)
        if missing:
            raise NotHere(f"there is no package {missing[1]!r}: pip install -e '.[bench]'")
        raise RuntimeError(f"{' '.join(arguments)}\nended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Without proxies for this machine, and without TensorFlow's remarks."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


@contextmanager
def endless_shard(size: int, counter: Path) -> Iterator[str]:
    """The URL of a shard of `size` bytes; how many were sent stands in `counter`."""
    command = [sys.executable, "-m", "tests.benchmarks.endless", str(size), str(counter)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/endless.tar"
        finally:
            process.terminate()
