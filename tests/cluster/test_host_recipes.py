"""Run the commands of the recipes for several hosts, examples/kubernetes.yaml and examples/job_array.sh."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import ais_tar2tf as t2t
from tests.support import shards as made

ROOT = Path(t2t.__file__).parents[1]
MANIFEST = ROOT / "examples" / "kubernetes.yaml"
SHARDS, RECORDS = 3, 4


@pytest.fixture
def imagenet_server(tmp_path: Path):
    bucket = tmp_path / "buckets" / "imagenet"
    bucket.mkdir(parents=True)
    for number in range(SHARDS):
        (bucket / f"train-{number:03d}.tar").write_bytes(made.labelled(f"n{number}", RECORDS))
    with t2t.serve(tmp_path / "buckets") as server:
        yield server


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the package is installed, as in the manifest's image."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, arguments in (("ais-tar2tf", "-m ais_tar2tf"), ("python", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def ran(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def jobs() -> dict[str, dict[str, Any]]:
    documents = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    return {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Job"}


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = job["template"]["spec"]["containers"]
    return only


def test_the_manifest_states_one_number_of_hosts():
    found = jobs()
    assert list(found) == ["convert", "finish", "train"]
    for name in ("convert", "train"):
        assert found[name]["completionMode"] == "Indexed"
        assert found[name]["completions"] == found[name]["parallelism"] == 8
    assert '--shard "$JOB_COMPLETION_INDEX/8"' in container(found["convert"])["args"][0]
    told = {each["name"]: each.get("value") for each in container(found["train"])["env"]}
    assert told == {"RANK": None, "WORLD_SIZE": "8"}
    assert all(
        job["template"]["spec"]["restartPolicy"] == "Never" for job in found.values()
    )  # as podFailurePolicy requires


def test_the_manifests_commands_convert_publish_and_read(imagenet_server, programs):
    def run(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        job = container(jobs()[name])
        command = job["args"][0].replace("{000..146}", f"{{000..{SHARDS - 1:03d}}}").replace("/8", "/2")
        command = command.replace("/app/", f"{ROOT}/")
        return ran([*job["command"], command], {**programs, "AIS_ENDPOINT": imagenet_server.url, **environment})

    assert run("convert", JOB_COMPLETION_INDEX="0").returncode == 0
    early = run("finish")
    assert early.returncode == 7, early.stderr  # a share is missing, so the Job retries
    last = run("convert", JOB_COMPLETION_INDEX="1")
    assert last.returncode == 0, last.stderr
    done = run("finish")
    assert done.returncode == 0, done.stderr
    written = t2t.load("ais://imagenet-records", endpoint=imagenet_server.url)
    assert len(written) == SHARDS * RECORDS
    trained = run("train", RANK="1", WORLD_SIZE="8")
    assert re.match(r"host 1 of 8: \d+ records", trained.stdout), trained.stderr


def test_the_job_array_converts_and_publishes(imagenet_server, programs, tmp_path):
    url, out = f"ais://imagenet/train-{{000..{SHARDS - 1:03d}}}.tar", str(tmp_path / "out")
    for number in range(2):
        array = {
            "SLURM_ARRAY_TASK_ID": str(number),
            "SLURM_ARRAY_TASK_COUNT": "2",
            "AIS_ENDPOINT": imagenet_server.url,
        }
        done = ran([str(ROOT / "examples" / "job_array.sh"), url, out], {**programs, **array})
        assert done.returncode == 0, done.stderr
    (finish,) = re.findall(r'--wrap "(.*)"', (ROOT / "examples" / "job_array.sh").read_text(encoding="utf-8"))
    done = ran(["bash", "-c", finish.replace("/shared/out", out)], programs)
    assert done.returncode == 0, done.stderr
    assert len(t2t.load(out)) == SHARDS * RECORDS
