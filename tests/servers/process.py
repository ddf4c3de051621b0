"""One server process: started in a group of its own, waited for, stopped by its id, gone when its parent is."""

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

_PATIENCE = 40.0  # seconds for a server to be ready, on a machine that is busy
_STOP = 10.0  # seconds that it has for stopping by itself
_PAUSE = 0.02  # seconds between two looks
_PORTS_EACH = 5_500  # for each of four workers, from 10,000 up to where the kernel's begin, at 32,768


class ServerError(AssertionError):
    """A real server did not do what its tests rest on."""


class Process:
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
        """Ask it to end; kill what does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: it has no time to say good-bye."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        for number in (how, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP)
                break
        self._process = None

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """As the function of that name; a process that ends meanwhile is told with its last lines."""

        def looked() -> bool:
            if not self.running():
                raise ServerError(f"{self._command[0]} ended before {what}:\n{self.last_lines()}")
            return ready()

        wait_until(looked, what)

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
    """Ports that nobody else takes until a server listens: each is given once, and pytest's workers share none."""
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    return found


def _own_ports() -> Iterator[int]:
    """Below those that the kernel gives to connections and to whoever asks for any port."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = _PORTS_EACH * (worker % 4) + random.randrange(_PORTS_EACH)  # other runs begin elsewhere
    return (10_000 + (begin + at) % (4 * _PORTS_EACH) for at in itertools.count())


def _quiet_environment() -> dict[str, str]:
    """What a server needs of ours: nothing that names endpoints, credentials or proxies."""
    return {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in os.environ}


_ports = _own_ports()
