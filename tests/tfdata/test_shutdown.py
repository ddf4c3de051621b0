"""The exit of a program waits for callbacks of TensorFlow, but never without a bound."""

from __future__ import annotations

import threading
import time

import pytest

from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.tfdata import shutdown


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> shutdown._RunningCallbacks:
    """Return callbacks of their own, whose shutdown closes no reader of other tests."""
    monkeypatch.setattr(shutdown, "close_all", lambda: None)
    return shutdown._RunningCallbacks()


def test_the_exit_waits_for_a_running_callback(callbacks) -> None:
    callbacks.begin()
    ended = threading.Event()

    def end() -> None:
        ended.set()
        callbacks.end()

    timer = threading.Timer(0.2, end)
    timer.start()
    callbacks.shut_down()
    assert ended.is_set()
    timer.join()
    with pytest.raises(Tar2TFError, match="exiting"):
        callbacks.begin()


def test_a_dataset_that_ignores_errors_does_not_hold_the_exit_up(callbacks, monkeypatch) -> None:
    """Behind `repeat().ignore_errors()`, TensorFlow calls again after each refused call."""
    monkeypatch.setattr(shutdown, "_EXIT_SECONDS", 0.5)
    over = threading.Event()

    def call_on() -> None:
        while not over.wait(0.001):
            with pytest.raises(Tar2TFError):
                callbacks.begin()

    began = time.monotonic()
    callbacks._is_shut_down = True
    caller = threading.Thread(target=call_on)
    caller.start()
    callbacks.shut_down()
    over.set()
    caller.join()
    assert 0.4 < time.monotonic() - began < 10
