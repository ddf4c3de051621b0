"""TensorFlow without the remarks on the machine that it writes to standard error when it is imported."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["import_tensorflow"]


@contextmanager
def _muted() -> Generator[None]:
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def import_tensorflow(*, keras: bool = False) -> None:
    """So that whoever imports it later finds it there."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _muted():
        import tensorflow as tf

        if keras:
            _ = tf.keras.Sequential
        tf.config.list_physical_devices()
