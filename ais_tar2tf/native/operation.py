"""Loads the TensorFlow operation of the native step. Only this module of the package knows TensorFlow."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

from ais_tar2tf.native.library import FOLDER, engine

__all__ = ["cut_library"]

_LIBRARY = "cut.so"
_log = logging.getLogger("ais_tar2tf")


@functools.cache
def _load() -> Any:
    import tensorflow as tf

    path = FOLDER / _LIBRARY
    try:
        return tf.load_op_library(os.fspath(path))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        _log.warning("%s cannot be loaded, so Python copies each field: %s", path, error)
        return None


def cut_library() -> Any:
    """Return the module with TensorFlow's operation `ais_tar2tf_cut`; None where it cannot be used."""
    return _load() if engine().name == "native" else None
