"""The records that a dataset reads: of one source or of a mixture, from any position on, and one host's share."""

from __future__ import annotations

from ais_tar2tf.streams.datasets.reading import (
    Reading,
    SourceReading,
    all_records,
    position_after,
    size_of,
    timed_records,
)

__all__ = [
    "Reading",
    "SourceReading",
    "all_records",
    "position_after",
    "size_of",
    "timed_records",
]
