"""The exit codes of the command line. `failures.py` says which error has which."""

from __future__ import annotations

__all__ = ["ACCESS", "CORRUPT", "DONE", "FAILED", "INTERRUPTED", "NETWORK", "NOT_FOUND", "PART", "USAGE"]

DONE = 0
FAILED = 1  # any error without a code of its own
USAGE = 2
NOT_FOUND = 3
ACCESS = 4
NETWORK = 5
CORRUPT = 6
PART = 7  # done in part: records were skipped, or Ctrl-C left something to resume
INTERRUPTED = 130  # Ctrl-C, when nothing is left to resume; shells expect this number
