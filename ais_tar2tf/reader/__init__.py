"""fetch → archive → records: the records of a plan, from any position on, and the position behind each of them.

A *lane* reads its shards one after another. A *stream* hands records out in the plan's order: one lane as it
comes, or windows over several lanes, permuted.
"""

from __future__ import annotations

from ais_tar2tf.reader.parts import read_part, read_places
from ais_tar2tf.reader.shards import Shards
from ais_tar2tf.reader.stream import RecordStream

__all__ = ["RecordStream", "Shards", "read_part", "read_places"]
