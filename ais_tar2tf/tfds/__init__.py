"""TensorFlow Datasets (TFDS) builders over shards."""

from __future__ import annotations

from ais_tar2tf.tfds.builders import builder

__all__ = ["builder"]


def __dir__() -> list[str]:
    return sorted(__all__)
