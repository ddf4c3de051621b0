"""The objects that users hold: a `Source` over shards, a `Mixture` of several, and `Loaded` record files."""

from ais_tar2tf.source.opening import index_shards, iter_records, open_source
from ais_tar2tf.source.source import Source

__all__ = [
    "Source",
    "index_shards",
    "iter_records",
    "open_source",
]
