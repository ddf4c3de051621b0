"""The format tar: each field of a record is a member `KEY.FIELD`, so the files can be opened as shards."""

from __future__ import annotations

import io
from typing import Any

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import MappingError
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.formats.base import RecordFormat, Scan
from ais_tar2tf.recordfiles.formats.rows import Row
from ais_tar2tf.recordfiles.formats.tar_members import END, record_members
from ais_tar2tf.records import Grouper, Record

__all__ = ["FORMAT"]

_READ = 1 << 20


class _TarFormat(RecordFormat):
    name = "tar"
    extension = ".tar"  # other tools look for it at the end of the name
    end = END
    holds_examples = False
    random_access = False

    def row(self, record: Record, written: Any) -> Row:
        if not isinstance(written, dict):
            raise MappingError(
                f"for a tar, a record's fields are expected, a dict of bytes, not {type(written).__name__}",
                shard=record["__shard__"],
                key=record["__key__"],
            )
        return record_members({"__key__": record["__key__"], **written})

    def scan(self, stream: io.BufferedReader[Any], url: str) -> Scan:
        grouper = Grouper(url, Account(), Limits())
        archive = ShardArchive(url, Limits(), wanted=grouper.wants)
        records = 0
        while block := stream.read(_READ):
            for members in archive.feed(memoryview(block)):
                records += len(grouper.add(members).records)
        archive.finish()
        return Scan(records + len(grouper.finish().records))


FORMAT = _TarFormat()
