"""The real servers themselves: that each is there, is reached by nobody else, and ends with the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.servers import namespace
from tests.servers.aistore import AIStore
from tests.servers.cluster import AuthCluster
from tests.servers.minio import Minio
from tests.servers.process import Process, wait_until

ROOT = Path(__file__).parents[1]


@pytest.mark.servers("own-aistore", "authn", "minio")
def test_what_runs_is_reached_from_loopback_only(own_aistore: AIStore, authn: AuthCluster, minio: Minio) -> None:
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
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    server = Path(f"/proc/{int(done.stdout)}/stat")
    wait_until(lambda: not server.exists() or server.read_text().split()[2] == "Z", "the server's end", 10)


def test_a_server_that_ends_early_is_told_with_what_it_said(tmp_path: Path) -> None:
    server = Process([sys.executable, "-c", "raise SystemExit('no disk')"], tmp_path / "log")
    server.start()
    with pytest.raises(AssertionError, match="ended before it was ready:\nno disk"):
        server.wait_until(lambda: False, "it was ready")
    server.stop()
