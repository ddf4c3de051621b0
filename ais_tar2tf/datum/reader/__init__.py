"""The reader of record files that `export_to_tfrecord` or the original Datum wrote."""

from __future__ import annotations

from ais_tar2tf.datum.reader.dataset import Dataset, load

__all__ = ["Dataset", "load"]


def __dir__() -> list[str]:
    return sorted(__all__)
