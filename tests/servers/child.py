"""PARENT COMMAND… — becomes the command, which the kernel kills when its parent dies, however that dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() == int(sys.argv[1]):  # it may have died before
        os.execvp(sys.argv[2], sys.argv[2:])
