"""Locks at the destination of exports: a lock on the folder if it is a folder, and claims if it is in a store.

Stores have no locks, so claims take their place. A claim is an object. A process writes a claim and then lists all
claims. If there is no other claim, the process holds the lock. Otherwise the process deletes its claim and tries
again after a while. If two processes write claims at the same time, at least one of them lists the claim of the
other. If a process sees the claim of another process for longer than `Claims.dead`, this claim counts as dead: its
process was probably killed.

This module must not know which documents its locks protect.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export.destinations import Destination, FolderDestination

__all__ = ["CLAIMS", "Claims", "exclusive"]

CLAIMS = ".publishing"
"""The folder of claims. It is empty when no process is publishing."""

_TEXT = b"ais_tar2tf is about to change a document here that other exports change, too.\n"


@dataclass(frozen=True, kw_only=True)
class Claims:
    """A lock that consists of claims, and its rules for waiting. Tests replace `clock`, `pause` and `draw`."""

    # Seconds until a claim counts as dead. The lock's holder makes few requests, each of at most 45 s with retries.
    dead: float = 120.0
    patience: float = 600.0  # seconds until waiting fails; a thousand exports can be published in this time
    # Seconds to wait after the first try. Each later pause is twice as long, because each try costs three requests.
    first_pause: float = 0.02
    max_pause: float = 1.0  # seconds
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    @contextlib.contextmanager
    def held(self, destination: Destination) -> Generator[None]:
        """Hold the lock at a destination.

        Raises:
            ExportError: Other processes held the lock for `patience` seconds. Or this process held the lock for so
                long that another process counted this process's claim as dead and deleted it.
        """
        name = self._acquire(destination)
        try:
            yield
            if destination.size(name) is None:
                raise ExportError(
                    f"{destination.url(name)}: publishing took so long that another export took this one for dead; "
                    "export again"
                )
        finally:
            destination.delete(name)

    def _acquire(self, destination: Destination) -> str:
        began, pause = self.clock(), self.first_pause
        first_seen: dict[str, float] = {}
        while True:
            name = f"{CLAIMS}/{secrets.token_hex(8)}"  # each try has a new name: only a dead claim is seen for long
            destination.write(name, _TEXT)
            others = [each for each in destination.names(f"{CLAIMS}/") if each != name]
            if not others:
                return name
            destination.delete(name)
            now = self.clock()
            for each in others:
                if now - first_seen.setdefault(each, now) > self.dead:
                    destination.delete(each)
            if now - began > self.patience:
                raise ExportError(
                    f"{destination.url(CLAIMS)}: other exports have been publishing for {self.patience:g} s; "
                    "try again"
                )
            self.pause(pause * (0.5 + self.draw()))
            pause = min(2 * pause, self.max_pause)


@contextlib.contextmanager
def exclusive(destination: Destination, claims: Claims = Claims()) -> Generator[None]:  # a `Claims` is immutable
    """Hold the lock at a destination, so that no other process changes the documents that exports share there."""
    if not isinstance(destination, FolderDestination):
        with claims.held(destination):
            yield
        return
    handle = os.open(destination.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
