"""Find threads and open files that a test leaves behind.

Tests compare with the state before, because leftovers of earlier tests may end at any time.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

_PATIENCE = 20.0
END_SECONDS = 15.0  # within these, a dropped iterator's threads end; on an idle machine within one or two


def open_files() -> set[str]:
    """Return each open descriptor together with the file or socket that it refers to."""
    found: set[str] = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{each.name} {each.readlink()}")
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def our_threads() -> set[threading.Thread]:
    """Return the package's threads, without the one that watches for dropped iterators (tfdata/test_dropped.py)."""
    ours = (thread for thread in threading.enumerate() if thread.name.startswith("ais_tar2tf"))
    return {thread for thread in ours if thread.name != "ais_tar2tf-periodic"}


def left_running(before: set[threading.Thread]) -> list[str]:
    """Return the names of the package's new threads that do not end within `END_SECONDS`.

    TensorFlow destroys iterators some time after they are dropped.
    """
    deadline = time.monotonic() + END_SECONDS
    while (left := our_threads() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(thread.name for thread in left)


def left_open(before: set[str]) -> list[str]:
    """Return the files that were opened since `before` and stay open.

    A server in this process may accept a connection late, and then closes it late, so this function waits.
    """
    deadline = time.monotonic() + _PATIENCE
    while (left := open_files() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(left)
