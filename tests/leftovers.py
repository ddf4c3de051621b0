"""What a test could leave behind. Compared by membership: what earlier tests left may end at any time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_PATIENCE = 20.0
ENDED = 15.0  # seconds in which all ends that a dropped iterator had open; an idle machine takes one or two


def open_files() -> set[str]:
    """Each open descriptor with what it is open on."""
    found: set[str] = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{each.name} {each.readlink()}")
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def our_threads() -> set[threading.Thread]:
    """Our threads, without the lookout, which ends when nothing is left to watch (tests/test_dropped.py)."""
    ours = (thread for thread in threading.enumerate() if thread.name.startswith("ais_tar2tf"))
    return {thread for thread in ours if thread.name != "ais_tar2tf-lookout"}


def left_running(before: set[threading.Thread]) -> list[str]:
    """Our threads that were not there before and go on: TensorFlow destroys its iterators in its own time."""
    deadline = time.monotonic() + ENDED
    while (left := our_threads() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(thread.name for thread in left)


def left_open(before: set[str]) -> list[str]:
    """What is open, was not before, and stays: a server in this process may accept late, and then closes late."""
    deadline = time.monotonic() + _PATIENCE
    while (left := open_files() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(left)
