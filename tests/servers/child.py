"""Run a command that the kernel kills when its parent process ends in any way: `child.py PARENT COMMAND…`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() == int(sys.argv[1]):  # otherwise the parent has ended already
        os.execvp(sys.argv[2], sys.argv[2:])
