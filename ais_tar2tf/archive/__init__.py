"""Blocks of a shard's bytes → its members. What a shard is, its first bytes say, never its name. No I/O."""

from __future__ import annotations

from ais_tar2tf.archive._members import Archive, Bytes, Members, Wanted
from ais_tar2tf.archive._shard import ShardArchive
from ais_tar2tf.archive._tar import TarReader
from ais_tar2tf.archive._tfrecord import FRAME_BYTES, MASK_DELTA, masked_crc
from ais_tar2tf.archive._zip_directory import Directory, DirectoryFinder

__all__ = [
    "FRAME_BYTES",
    "MASK_DELTA",
    "Archive",
    "Bytes",
    "Directory",
    "DirectoryFinder",
    "Members",
    "ShardArchive",
    "TarReader",
    "Wanted",
    "masked_crc",
]
