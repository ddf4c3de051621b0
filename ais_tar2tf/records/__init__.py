"""Members → records: the grouping rules, the selection of fields, and the account of what fits neither. No I/O.

A record is what stands together under one key: `{"__key__": "a/b", "__shard__": url, "jpg": bytes, ...}`.
"""

from __future__ import annotations

from ais_tar2tf.records.grouper import Grouper
from ais_tar2tf.records.naming import SYSTEM_FILES, Grouping, Split, is_no_field, splitter
from ais_tar2tf.records.selection import Selection, Want
from ais_tar2tf.records.table import NAMES, Record, RecordBatch, Records, said_fields

__all__ = [
    "NAMES",
    "SYSTEM_FILES",
    "Grouper",
    "Grouping",
    "Record",
    "RecordBatch",
    "Records",
    "Selection",
    "Split",
    "Want",
    "is_no_field",
    "said_fields",
    "splitter",
]
