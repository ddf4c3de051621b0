"""Real servers start, are reachable only from this machine, and end with the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.servers import build, namespace
from tests.servers.aistore import AIStore
from tests.servers.cluster import AuthCluster
from tests.servers.enter import MISSING
from tests.servers.minio import Minio
from tests.servers.process import Process, wait_until

ROOT = Path(__file__).parents[2]
ONE_TEST = "import pytest\n@pytest.mark.servers('aistore')\ndef test_real(): pass\ndef test_other(): pass\n"


@pytest.mark.servers("own-aistore", "authn", "minio")
def test_servers_are_reachable_from_loopback_only(own_aistore: AIStore, authn: AuthCluster, minio: Minio) -> None:
    assert namespace.is_private()
    assert requests.get(f"{own_aistore.url}/v1/health", timeout=5).ok
    assert requests.get(f"{authn.url}/v1/buckets", timeout=5).status_code == 401
    assert requests.get(f"{minio.url}/minio/health/live", timeout=5).ok


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; from tests.servers.process import Process\n"
        "server = Process([sys.executable, '-c', 'import time; time.sleep(60)'], pathlib.Path('log'))\n"
        "server.start(); print(server.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL
    server = Path(f"/proc/{int(done.stdout)}/stat")
    wait_until(lambda: not server.exists() or server.read_text().split()[2] == "Z", "the server's end", 10)


def test_a_server_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    server = Process([sys.executable, "-c", "raise SystemExit('no disk')"], tmp_path / "log")
    server.start()
    with pytest.raises(AssertionError, match="ended before it was ready:\nno disk"):
        server.wait_until(lambda: False, "it was ready")
    server.stop()


def run_pytest(folder: Path, *, ci: bool, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run pytest with two tests, one of which needs a real server that is not available."""
    (folder / "test_two.py").write_text(ONE_TEST)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PYTHONPATH": str(ROOT), MISSING: "there is no network namespace"}
    if ci:
        environment["CI"] = "true"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.servers.plugin", "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_without_servers_one_line_gives_the_reason(tmp_path: Path, workers: str) -> None:
    done = run_pytest(tmp_path, ci=False, arguments=("-n", workers))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("there is no network namespace") == 1
    assert "1 passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_in_ci_the_absence_of_a_server_fails_the_run(tmp_path: Path, workers: str) -> None:
    done = run_pytest(tmp_path, ci=True, arguments=("-n", workers))
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count("1 tests need real servers: there is no network namespace") == 1
    assert "passed" not in done.stdout


def test_an_external_server_needs_no_namespace(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, ci=True, arguments=("--endpoint", "http://127.0.0.1:1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_failed_build_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_go", lambda: ("false", dict(os.environ)))
    with pytest.raises(build.BuildError, match=r"building aisnode v1\.5\.0 failed with status 1: no output"):
        build.build(build.EVERYDAY["aisnode"])
    assert sorted(path.name for path in (tmp_path / "ais_tar2tf" / "servers").iterdir()) == ["lock"]


def test_programs_are_kept_by_version_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = tmp_path / "log"
    fake = tmp_path / "go"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\ntouch "$3"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(build, "_go", lambda: (str(fake), dict(os.environ)))
    paths = [build.build(build.FULL[name]) for name in ("aisnode-aws", "aisnode-dsort", "aisnode-aws")]
    assert len(set(paths)) == 2
    assert "aisnode-v1.5.0-aws-" in str(paths[0])
    assert log.read_text().count("github.com/NVIDIA/aistore/cmd/aisnode") == 2


def test_later_programs_are_downloaded_while_the_first_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    os.mkfifo(tmp_path / "fetched")
    fake = tmp_path / "go"
    fake.write_text(
        f"""#!/bin/sh
case "$1 $3" in
list*minio) echo "$PWD" >{tmp_path}/fetched ;;
build*aisnode) cat {tmp_path}/fetched >{tmp_path}/told; touch "$3" ;;
build*) touch "$3" ;;
esac
"""
    )
    fake.chmod(0o755)
    monkeypatch.setattr(build, "_go", lambda: (str(fake), dict(os.environ)))
    build.build_all(full=False)
    assert (tmp_path / "told").read_text().strip().endswith("modules/minio")
    assert all(program.path.is_file() for program in build.EVERYDAY.values())


_SETUP_PYTHON = f"""#!/bin/sh
case "$*" in
*tests/servers/child.py*) shift 3; exec "$@" ;;
*"-m pip --version"*) ;;
*"-m pip install"*) echo "packages are installed, after $(cat "$FIFO") began" ;;
*"-m tests.servers.build"*) echo "$*" >"$FIFO" ;;
*"-m tests.servers.enter"*) echo "then $*" ;;
*) exec {sys.executable} "$@" ;;
esac
"""


def test_servers_are_built_while_packages_are_installed(tmp_path: Path) -> None:
    """Run setup.sh with a fake Python, and check that it builds servers and installs packages at the same time."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_SETUP_PYTHON)
    python.chmod(0o755)
    os.mkfifo(tmp_path / "begun")  # the reader and the writer of a fifo wait for each other
    for name in ("setup.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {"PATH": os.environ["PATH"], "FIFO": str(tmp_path / "begun")}
    command = [str(tmp_path / "setup.sh"), "test", "--full", "-k", "one and two"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    run = f"{python} -m pytest -n auto --dist worksteal --full -k one and two"
    assert done.stdout.splitlines() == [
        "packages are installed, after -m tests.servers.build --full -k one and two began",
        f"then -m tests.servers.enter {run}",
    ]
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    assert again.stdout.splitlines() == [f"then -m tests.servers.enter {run}"]
