"""Run the examples as users do, without a cluster. The quick ones run one after another in one process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    return _python(str(ROOT / "examples" / "imagenet_in_memory.py"))


def test_it_trains_on_its_own_shards(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr
    trained = re.search(r"trained on ([\d,]+) records in [\d.]+ s \([\d,]+ records/s\): loss", finished.stdout)
    assert trained is not None, finished.stdout
    assert trained[1] == "1,024"


def test_it_learns(finished: subprocess.CompletedProcess[str]) -> None:
    evaluated = re.search(r"evaluated 1,024 records .* accuracy ([\d.]+)%", finished.stdout)
    assert evaluated is not None, finished.stdout
    assert float(evaluated[1]) > 50  # guessing among ten classes gives 10 %


def test_it_shows_what_an_error_looks_like(finished: subprocess.CompletedProcess[str]) -> None:
    assert "ShardNotFound: ais://shapes/train-8.tar.gz" in finished.stdout


def test_it_prints_no_warnings(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.stderr == ""
    assert len(finished.stdout.splitlines()) < 10


_IN_TURN = """
import contextlib, io, json, os, runpy, sys, traceback

def run(path, arguments):
    out, err, environment = io.StringIO(), io.StringIO(), dict(os.environ)
    sys.argv, status = [path, *arguments], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:
            status = ended.code
        except Exception:
            status = 1
            traceback.print_exc()
    os.environ.clear()
    os.environ.update(environment)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}

print(json.dumps([run(path, arguments) for path, arguments in json.loads(sys.argv[1])]))
"""
OUTPUTS = {
    "convert_to_tfrecord": ["verified 400 records in 3 files", "a dataset of 13 batches: ['__key__', 'cls', 'txt']"],
    "custom_mapping": ["scores (16, 3), ids [0, 1, 2, 3]", "3 of 4 records kept, skipped: {'MappingError': 1}"],
    "resume_training": ["stopped after 5 batches", "nothing repeated, nothing lost: True"],
    "multi_host": ["together 600, different 600"],
    "datum_style": ["image (16, 16, 16, 3), label int64", "val has 20 images, the first labels are [0, 1, 2, 0, 1]"],
    "tfrecorder_style": ["ignored rows: 1", "train: 60 chunks of shape {(25,)}", "test: 4 chunks"],
    "job_array": ["still to run: hosts 1, 2", "12 files, 600 records"],
    "in_cluster": ["60 labels: ", "60 pictures turned in the cluster, the same as here: True", "each once: True"],
    "from_webdataset": ["90 records there; the same ones in the same order: True"],
}
_MISUSED = "imagenet_in_memory"


@pytest.fixture(scope="module")
def all_finished() -> dict[str, dict[str, Any]]:
    """Run the examples of OUTPUTS, and one with wrong arguments, and return their output."""
    asked = {**dict.fromkeys(OUTPUTS, ()), _MISUSED: ("--endpoint", "http://localhost:1")}
    runs = [(str(ROOT / "examples" / f"{example}.py"), arguments) for example, arguments in asked.items()]
    done = _python("-c", _IN_TURN, json.dumps(runs))
    assert done.returncode == 0, done.stderr
    return dict(zip(asked, json.loads(done.stdout.splitlines()[-1]), strict=True))


def test_an_endpoint_alone_is_not_enough(all_finished: dict[str, dict[str, Any]]) -> None:
    assert all_finished[_MISUSED]["status"] == 2
    assert "--endpoint needs a --bucket" in all_finished[_MISUSED]["err"]


@pytest.mark.parametrize("example", OUTPUTS)
def test_an_example_prints_its_result(example: str, all_finished: dict[str, dict[str, Any]]) -> None:
    done = all_finished[example]
    assert not done["status"], done["err"]
    for each in OUTPUTS[example]:
        assert each in done["out"]


def test_every_example_is_run_here_or_in_a_test_of_its_own() -> None:
    tests = "".join(each.read_text(encoding="utf-8") for each in Path(__file__).parents[1].rglob("test_*.py"))
    for example in (each for each in (ROOT / "examples").glob("*.*") if each.suffix != ".md"):
        assert example.stem in tests, example
