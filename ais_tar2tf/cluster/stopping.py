"""The end of a program that serves: Ctrl-C and SIGTERM set an event."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator

from ais_tar2tf.base import forking

__all__ = ["stop_event"]


@contextlib.contextmanager
def stop_event() -> Generator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets; restore their handlers afterwards."""
    stop = forking.event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
