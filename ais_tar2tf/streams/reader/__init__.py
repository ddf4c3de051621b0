"""The reading of the records of a plan from any position on, with the position after each record.

A *lane* reads its shards one after another. A *stream* returns records in the plan's order: the records of one lane,
or permuted windows of the records of several lanes.
"""

from __future__ import annotations

from ais_tar2tf.streams.reader.base import Stream
from ais_tar2tf.streams.reader.sampling import read_part, read_places
from ais_tar2tf.streams.reader.sessions import ReadSession
from ais_tar2tf.streams.reader.shard_list import Shards
from ais_tar2tf.streams.reader.stream import RecordStream

__all__ = ["ReadSession", "RecordStream", "Shards", "Stream", "read_part", "read_places"]
