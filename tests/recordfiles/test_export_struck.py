"""Kill an export at each of its system calls on files, in turn, or let the call fail, by strace.

Every published file must equal that of an undisturbed export, byte for byte. After a second run, all files must be
published.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from tests.support.record_folders import ROOT, source, tree

COUNTS = [15, 3, 0, 12, 20]
CALLS = ("write", "writev", "fsync", "rename", "mkdir", "unlink", "unlinkat")
_ON_FILES = re.compile(r"^(\d+) +(\w+)\(")
_LAST_WORDS = "typed: "
_PROGRAM = """
import sys
import ais_tar2tf as t2t
try:
    t2t.open(sys.argv[1]).export(sys.argv[2], **eval(sys.argv[3]))
except t2t.errors.ExportError as error:
    sys.exit(f"typed: {error}")
"""


@functools.cache
def _strace() -> str | None:
    """Return the path of strace, or None if it is missing or may not trace."""
    found = shutil.which("strace")
    works = found and subprocess.run([found, "-qq", "-o", os.devnull, "true"], check=False, capture_output=True)
    return found if works and works.returncode == 0 else None


pytestmark = pytest.mark.skipif(_strace() is None, reason="strace, which injects the faults, is not installed")


@dataclass(frozen=True)
class Plan:
    """The arguments of the export."""

    options: tuple[tuple[str, Any], ...]
    over_another: bool = False  # an existing export of the same shards is replaced

    @property
    def how(self) -> dict[str, Any]:
        return dict(self.options) | ({"exists": "replace"} if self.over_another else {})


SMALL = Plan((("shard_records", 25), ("workers", 1)))
PLANS = {
    "one process": Plan((("shard_records", 4), ("workers", 1))),
    "workers": Plan((("shard_records", 10), ("workers", 2))),
    "replaced": Plan((("shard_records", 6), ("workers", 1), ("idx", True)), over_another=True),
    "tar": Plan((("shard_records", 10), ("workers", 1), ("format", "tar"))),
}


@dataclass
class Bench:
    """The shards of a plan, the files of an undisturbed export, and the system calls to disturb."""

    template: str
    plan: Plan
    folder: Path

    def prepare(self) -> None:
        if self.plan.over_another:
            t2t.open(self.template).export(self.folder / "before", shard_records=9, workers=1)
        self._set_up()
        self.run()
        shutil.move(self.out, self.folder / "whole")
        self.whole = tree(self.folder / "whole")
        self.before = tree(self.folder / "before") if self.plan.over_another else {}
        assert len(self.whole) > 3

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def points(self) -> list[tuple[str, int]]:
        """Return the system calls of an undisturbed run, as (name, number in its thread)."""
        self._set_up()
        log = self.folder / "log"
        self._traced(["-o", str(log), "-e", f"trace={','.join(CALLS)}"])
        by_thread: Counter[tuple[str, str]] = Counter()
        for line in log.read_text().splitlines():
            if (call := _ON_FILES.match(line)) is not None:
                by_thread[call[1], call[2]] += 1
        most: Counter[str] = Counter()
        for (_, call), count in by_thread.items():
            most[call] = max(most[call], count)
        return [(call, number) for call in sorted(most) for number in range(1, most[call] + 1)]

    def strike(self, call: str, number: int, what: str) -> str:
        """Disturb one system call, check the files, and run the export again. Return "killed", "typed" or "whole"."""
        self._set_up()
        inject = f"inject={call}:{what}:when={number}"
        done = self._traced(["-o", os.devnull, "-e", f"trace={call}", "-e", inject])
        where = f"{inject}: {done.returncode} {done.stderr}"
        if done.returncode == 1:
            said = done.stderr.splitlines()
            assert said[-1].startswith(_LAST_WORDS), where
            assert len(said) == 1 or self.plan.how["workers"] > 1, where  # the pipes of workers may be disturbed, too
        else:
            assert done.returncode in (0, -signal.SIGKILL), where
        assert self._found_bad() == {}, where
        if done.returncode == 0:  # except for the hidden folder, if it could not be deleted
            assert _shown(self.out) == self.whole, where
        t2t.open(self.template).export(self.out, **self.plan.how)
        assert tree(self.out) == self.whole, where
        return {0: "whole", 1: "typed"}.get(done.returncode, "killed")

    def _set_up(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if self.plan.over_another:
            shutil.copytree(self.folder / "before", self.out)

    def _found_bad(self) -> dict[str, str]:
        """Return the published files that belong neither to this export nor to the one before."""
        return {
            name: digest
            for name, digest in _shown(self.out).items()
            if name.startswith("dataset-") and digest not in (self.whole.get(name), self.before.get(name))
        }

    def run(self) -> None:
        subprocess.run(self._command(), check=True, cwd=ROOT, timeout=200)

    def _traced(self, how: list[str]) -> subprocess.CompletedProcess[str]:
        command = [str(_strace()), "-f", "-qq", *how, *self._command()]
        return subprocess.run(command, check=False, cwd=ROOT, timeout=120, capture_output=True, text=True)

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _PROGRAM, self.template, str(self.out), repr(self.plan.how)]


def _shown(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in tree(folder).items() if not name.startswith(".")}


def _bench(plan: Plan, tmp_path: Path) -> Bench:
    bench = Bench(source(tmp_path / "source", COUNTS), plan, tmp_path)
    bench.prepare()
    return bench


def test_export_is_killed_or_fails_at_some_calls(tmp_path: Path) -> None:
    bench = _bench(SMALL, tmp_path)
    points = bench.points()
    assert len(points) > 20
    for point in [("fsync", 3), ("rename", 2), ("rename", 5), ("writev", 2)]:
        assert bench.strike(*point, "signal=SIGKILL") == "killed"
    refused = [bench.strike("writev", 2, "error=ENOSPC"), bench.strike("write", 1, "error=EIO")]
    assert refused == ["typed", "typed"]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLANS)
def test_killed_at_every_call(tmp_path: Path, name: str) -> None:
    """Kill the export at each of over 200 system calls."""
    bench = _bench(PLANS[name], tmp_path)
    ends = Counter(bench.strike(*point, "signal=SIGKILL") for point in bench.points())
    print(name, dict(ends))
    assert ends["killed"] >= 30


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("name", ["workers", "replaced"])
def test_every_call_fails(tmp_path: Path, name: str, error: str) -> None:
    bench = _bench(PLANS[name], tmp_path)
    ends = Counter(bench.strike(*point, f"error={error}") for point in bench.points())
    print(name, error, dict(ends))
    assert ends["typed"] >= 20
    assert not ends["killed"]
