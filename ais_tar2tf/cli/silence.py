"""The silent import of TensorFlow, which otherwise prints messages about the machine to standard error."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["import_tensorflow"]


def import_tensorflow(*, keras: bool = False) -> None:
    """Import TensorFlow now, so that a later import prints nothing. `keras` loads Keras, too."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        import tensorflow as tf

        if keras:
            _ = tf.keras.Sequential
        tf.config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
