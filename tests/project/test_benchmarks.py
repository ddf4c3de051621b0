"""The benchmarks run and print complete results. Only CPU seconds are compared, because speed varies."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.bench import Result
from tests.benchmarks.plot import draw

ROOT = Path(__file__).resolve().parents[2]
LINES = ["records-2KB", "import"]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if shutil.which("curl") is None:
        pytest.skip("webdataset reads through curl, which is not installed")
    path = tmp_path_factory.mktemp("benchmarks") / "results.json"
    finished = _run("--rounds", "1", "--only", *LINES, "--json", str(path))
    assert finished.returncode == 0, finished.stderr
    return json.loads(path.read_text())


def test_the_machine_is_described(document: dict[str, Any]) -> None:
    machine = document["machine"]
    assert machine["cores"] >= 1
    assert machine["server"] in ("nginx", "embedded")
    assert machine["quick"] is True


def test_every_line_has_its_figures(document: dict[str, Any]) -> None:
    assert [result["name"] for result in document["results"]] == LINES
    for result in document["results"]:
        assert {"name", "ours", "peer", "peer_name", "ratio", "unit", "goal", "holds"} <= result.keys()
        assert isinstance(result["holds"], bool)
        assert result["ratio"] > 0
        assert math.isclose(result["ratio"], result["ours"] / result["peer"])


def test_a_rate_comes_with_cpu_seconds(document: dict[str, Any]) -> None:
    (records,) = (result for result in document["results"] if result["unit"] == "records/s")
    assert 0 < records["ours_cpu_s"] < records["peer_cpu_s"]  # which a busy machine changes little


def test_an_unknown_line_is_refused_by_name() -> None:
    finished = _run("--only", "no-such-line")
    assert finished.returncode != 0
    assert "no line is called 'no-such-line'" in finished.stderr
    assert "records-2KB" in finished.stderr


def test_results_are_drawn(tmp_path: Path) -> None:
    names = ("records-2KB", "records-grain-2KB", "streams-2", "streams-4", "parallel-2", "import")
    results = [
        Result(name=name, ours=200.0 * at, peer=100.0, peer_name=f"peer {at}", unit="records/s", goal=None)
        for at, name in enumerate(names, 1)
    ]
    draw(results, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    draw(results[-1:], tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()
