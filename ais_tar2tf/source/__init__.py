"""Shards named by URLs, and what can be made of them: records, a dataset. It composes; it decides nothing twice."""

from ais_tar2tf.source._arguments import (
    check_batching,
    check_even,
    check_unmapped,
    host_of,
    read_options,
    seed_of,
    shuffle_option,
)
from ais_tar2tf.source._naming import refuse_folder, shard_names
from ais_tar2tf.source._opening import index_shards, iter_records, open_source
from ais_tar2tf.source._ordered import Ordered
from ais_tar2tf.source._prepared import Prepared
from ais_tar2tf.source._source import Source

__all__ = [
    "Ordered",
    "Prepared",
    "Source",
    "check_batching",
    "check_even",
    "check_unmapped",
    "host_of",
    "index_shards",
    "iter_records",
    "open_source",
    "read_options",
    "refuse_folder",
    "seed_of",
    "shard_names",
    "shuffle_option",
]
