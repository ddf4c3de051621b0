"""Members become records: grouping by name, selection of fields, and tables of records.

A record is a dict of the fields of one key, such as `{"__key__": "a/b", "__shard__": url, "jpg": b"…"}`.
"""

from __future__ import annotations

from ais_tar2tf.records.base import RecordGrouper
from ais_tar2tf.records.block_table import BlockTable, TablePart
from ais_tar2tf.records.cuts import BlockArray, Cuts, Piece
from ais_tar2tf.records.grouper import Grouper
from ais_tar2tf.records.naming import SYSTEM_FILES, Grouping, Split, is_not_data, members_pattern, splitter
from ais_tar2tf.records.selection import Selection, Want
from ais_tar2tf.records.table import KEY_AND_SHARD, Record, RecordBatch, Records, listed_fields

__all__ = [
    "KEY_AND_SHARD",
    "SYSTEM_FILES",
    "BlockArray",
    "BlockTable",
    "Cuts",
    "Grouper",
    "Grouping",
    "Piece",
    "Record",
    "RecordBatch",
    "RecordGrouper",
    "Records",
    "Selection",
    "Split",
    "TablePart",
    "Want",
    "is_not_data",
    "listed_fields",
    "members_pattern",
    "splitter",
]
