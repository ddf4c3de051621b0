"""The decorator and the base class for classes of examples."""

from __future__ import annotations

__all__ = ["decorator", "marshaller"]

from ais_tar2tf.tfrecorder.helpers import decorator, marshaller


def __dir__() -> list[str]:
    return sorted(__all__)
