"""Start, wait for and stop one server process, which also ends when the tests' process ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import requests

__all__ = ["Process", "ServerError", "answers", "free_ports", "wait_until"]

_PATIENCE = 40.0  # seconds until a server is ready on a busy machine
_STOP = 10.0  # seconds until a server that was asked to stop is killed
_PAUSE = 0.02  # seconds between two checks
_PORTS_EACH = 5_500  # for each of four workers; they end below 32,768, where the kernel's ephemeral ports begin


class ServerError(AssertionError):
    """A real server did not start or did not get ready."""


class Process:
    """A server process in a process group of its own, whose output goes to `log`."""

    def __init__(self, command: list[str], log: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._log = log
        self._environment = {**_quiet_environment(), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        child = str(Path(__file__).with_name("child.py"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-S", child, str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process at once, as `kill -9` does."""
        self._end(signal.SIGKILL)

    def _end(self, first: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        for number in (first, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP)
                break
        self._process = None

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready()`. If the process ends before, raise an error with its last lines of output."""

        def checked() -> bool:
            if not self.running():
                raise ServerError(f"{self._command[0]} ended before {what}:\n{self.last_lines()}")
            return ready()

        wait_until(checked, what)

    def last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def wait_until(ready: Callable[[], bool], what: str, patience: float = _PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not ready():
        if time.monotonic() > deadline:
            raise ServerError(f"waited {patience:g} s for: {what}")
        time.sleep(_PAUSE)


def answers(url: str, *, verify: str | bool = True, status: int = 200) -> bool:
    try:
        return requests.get(url, timeout=5, verify=verify).status_code == status
    except requests.RequestException:
        return False


def free_ports(count: int) -> list[int]:
    """Return free ports. Each port is returned only once, and the workers of pytest use different ones."""
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    return found


def _own_ports() -> Iterator[int]:
    """Yield this worker's ports, below the kernel's range of ephemeral ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = _PORTS_EACH * (worker % 4) + random.randrange(_PORTS_EACH)  # other runs of the tests begin at other ports
    return (10_000 + (begin + at) % (4 * _PORTS_EACH) for at in itertools.count())


def _quiet_environment() -> dict[str, str]:
    """Return our environment without endpoints, credentials and proxies."""
    return {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in os.environ}


_ports = _own_ports()
