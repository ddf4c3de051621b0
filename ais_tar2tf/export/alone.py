"""One process at a time changes a shared document: by a lock in a folder, by claims in a store, which has no locks.

A claim is an object. A process leaves one, and then lists them all: it is alone if there is no other, and else takes
its claim back and tries again after a while. Of two processes that leave claims at the same time, at least one sees
the other's. A claim that stands for long is of a process that was killed.
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
from ais_tar2tf.export.places import Destination, Folder

__all__ = ["CLAIMS", "Claims", "alone"]

CLAIMS = ".publishing"
"""The folder of claims. Nothing is left in it when all processes are done."""

_TEXT = b"ais_tar2tf is about to change a document here that other exports change, too.\n"


@dataclass(frozen=True, kw_only=True)
class Claims:
    """How claims are waited for; clock, pauses and chance are passed in."""

    dead: float = 120.0  # seconds; who holds a claim sends a few small requests, with all their tries in 45 s each
    patience: float = 600.0  # seconds until this one gives up; a thousand publications take that
    first_pause: float = 0.02  # seconds; doubled while others are there, since each try costs three requests
    most_pause: float = 1.0
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    @contextlib.contextmanager
    def held(self, place: Destination) -> Generator[None]:
        """Hold the only claim."""
        name = self._claimed(place)
        try:
            yield
            if place.size(name) is None:
                raise ExportError(
                    f"{place.url(name)}: publishing took so long that another export took this one for dead; "
                    "export again"
                )
        finally:
            place.delete(name)

    def _claimed(self, place: Destination) -> str:
        began, pause = self.clock(), self.first_pause
        seen: dict[str, float] = {}
        while True:
            name = f"{CLAIMS}/{secrets.token_hex(8)}"  # another one each time: one that stands for long is dead
            place.write(name, _TEXT)
            others = [each for each in place.names(f"{CLAIMS}/") if each != name]
            if not others:
                return name
            place.delete(name)
            now = self.clock()
            for each in others:
                if now - seen.setdefault(each, now) > self.dead:
                    place.delete(each)
            if now - began > self.patience:
                raise ExportError(
                    f"{place.url(CLAIMS)}: other exports have been publishing for {self.patience:g} s; try again"
                )
            self.pause(pause * (0.5 + self.draw()))
            pause = min(2 * pause, self.most_pause)


@contextlib.contextmanager
def alone(place: Destination, claims: Claims = Claims()) -> Generator[None]:  # frozen
    """Be the only process that changes the documents of a place which several change."""
    if not isinstance(place, Folder):
        with claims.held(place):
            yield
        return
    handle = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
