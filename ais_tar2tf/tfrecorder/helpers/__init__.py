"""What a subclass of Example needs."""

from __future__ import annotations

__all__ = ["decorator", "marshaller"]

from ais_tar2tf.tfrecorder.helpers import decorator, marshaller


def __dir__() -> list[str]:
    return sorted(__all__)
