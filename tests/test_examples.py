"""The examples, run as a user runs them: in a process of their own, on a machine without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _run(*arguments: str, example: str = "imagenet_in_memory") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{example}.py"), *arguments],
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


@pytest.mark.parametrize(
    ("example", "told"),
    [
        (
            "convert_to_tfrecord",
            ["verified 400 records in 3 files", "a dataset of 13 batches: ['__key__', 'cls', 'txt']"],
        ),
        ("custom_mapping", ["scores (16, 3), ids [0, 1, 2, 3]", "3 of 4 records kept, skipped: {'MappingError': 1}"]),
        ("resume_training", ["stopped after 5 batches", "nothing twice, nothing left out: True"]),
        ("multi_host", ["together 600, different 600"]),
        (
            "datum_style",
            ["image (16, 16, 16, 3), label int64", "val has 20 images, the first labels are [0, 1, 2, 0, 1]"],
        ),
        ("tfrecorder_style", ["ignored rows: 1", "train: 60 chunks of shape {(25,)}", "test: 4 chunks"]),
        ("job_array", ["still to run: hosts 1, 2", "12 files, 600 records"]),
        ("from_webdataset", ["90 records there; the same ones in the same order: True"]),
    ],
)
def test_an_example_says_what_it_should(example: str, told: list[str]) -> None:
    finished = _run(example=example)
    assert finished.returncode == 0, finished.stderr
    for each in told:
        assert each in finished.stdout


def test_every_example_is_run_here_or_in_a_test_of_its_own() -> None:
    tests = "".join(each.read_text(encoding="utf-8") for each in Path(__file__).parent.glob("test_*.py"))
    for example in {*(ROOT / "examples").glob("*.*")} - {ROOT / "examples" / "README.md"}:
        assert example.stem in tests, example
