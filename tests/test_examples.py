"""The examples, run as a user runs them: in a process of their own, on a machine without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "imagenet_in_memory.py"), *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    return _run()


def test_it_trains_on_shards_that_it_makes(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr
    trained = re.search(r"trained on ([\d,]+) records in [\d.]+ s \([\d,]+ records/s\): loss", finished.stdout)
    assert trained is not None, finished.stdout
    assert trained[1] == "1,024"


def test_it_learns(finished: subprocess.CompletedProcess[str]) -> None:
    evaluated = re.search(r"evaluated 1,024 records .* accuracy ([\d.]+)%", finished.stdout)
    assert evaluated is not None, finished.stdout
    assert float(evaluated[1]) > 50  # ten classes: guessing gives 10 %


def test_it_shows_what_an_error_looks_like(finished: subprocess.CompletedProcess[str]) -> None:
    assert "ShardNotFound: ais://shapes/train-8.tar.gz" in finished.stdout


def test_it_says_nothing_that_is_not_to_the_point(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.stderr == ""
    assert len(finished.stdout.splitlines()) < 10


def test_an_endpoint_alone_is_not_enough() -> None:
    finished = _run("--endpoint", "http://localhost:1")
    assert finished.returncode == 2
    assert "--endpoint needs a --bucket" in finished.stderr
