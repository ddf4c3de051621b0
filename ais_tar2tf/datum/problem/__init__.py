"""The problems whose folder layouts `export_to_tfrecord` reads."""

from __future__ import annotations

from ais_tar2tf.datum.problem import types
from ais_tar2tf.datum.problem.types import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF

__all__ = ["IMAGE_CLF", "IMAGE_DET", "IMAGE_SEG", "TEXT_CLF", "types"]


def __dir__() -> list[str]:
    return sorted(__all__)
