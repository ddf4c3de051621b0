"""Archive readers: blocks of a shard's bytes become its members.

A shard's format is recognised by its first bytes, never by its name. This package does no I/O, and must not know
what a record is. `ShardArchive` is the entry; `members.py` defines the interface of the readers that it uses.
"""

from __future__ import annotations

from ais_tar2tf.archive.members import Archive, Bytes, ListedMembers, Members, MemberTable, Wanted, decode_names
from ais_tar2tf.archive.shard import ShardArchive
from ais_tar2tf.archive.tar import TarReader
from ais_tar2tf.archive.tfrecord import FRAME_BYTES, MASK_DELTA, masked_crc
from ais_tar2tf.archive.zip_directory import Directory, find_directory

__all__ = [
    "FRAME_BYTES",
    "MASK_DELTA",
    "Archive",
    "Bytes",
    "Directory",
    "ListedMembers",
    "MemberTable",
    "Members",
    "ShardArchive",
    "TarReader",
    "Wanted",
    "decode_names",
    "find_directory",
    "masked_crc",
]
