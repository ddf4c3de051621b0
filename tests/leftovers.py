"""What a test could leave behind. Compared by membership: what earlier tests left may end at any time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_PATIENCE = 20.0


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
    return {thread for thread in threading.enumerate() if thread.name.startswith("ais_tar2tf")}


def left_open(before: set[str]) -> list[str]:
    """What is open, was not before, and stays so: a server in this process may accept late, and then closes late."""
    deadline = time.monotonic() + _PATIENCE
    while (left := open_files() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(left)
