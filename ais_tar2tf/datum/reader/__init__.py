"""`load`: what `export_to_tfrecord` wrote, or an earlier Datum, as datasets of batches."""

from __future__ import annotations

from ais_tar2tf.datum.reader.dataset import Dataset, load

__all__ = ["Dataset", "load"]


def __dir__() -> list[str]:
    return sorted(__all__)
