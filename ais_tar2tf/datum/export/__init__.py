"""The export of a data set to record files: a folder or tar shards of a known problem, or a generator."""

from __future__ import annotations

from ais_tar2tf.datum.export import export
from ais_tar2tf.datum.export.export import export_to_tfrecord

__all__ = ["export", "export_to_tfrecord"]


def __dir__() -> list[str]:
    return sorted(__all__)
