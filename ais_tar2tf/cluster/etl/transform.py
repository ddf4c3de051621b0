"""The transformation of a shard in an ETL, a service that changes shards inside an AIStore cluster.

Blocks of the shard become pieces of a TFRecord file or of a tar. This module must not do I/O. It must hold only the
records of the current block, and about `_PIECE_BYTES` of output.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ais_tar2tf.archive import Bytes, ShardArchive
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.errors import MappingError, NoFeature, UnsupportedArchive
from ais_tar2tf.options import MIB, Limits
from ais_tar2tf.recordfiles.export.serializers import Serializer
from ais_tar2tf.recordfiles.formats import find_format
from ais_tar2tf.records import KEY_AND_SHARD, Grouper, Record, RecordBatch
from ais_tar2tf.values.default_mappings import declared_fields
from ais_tar2tf.values.example_grouper import ExampleGrouper

__all__ = ["Transform"]

_PIECE_BYTES = 1 * MIB  # bytes of output that are collected before they are yielded
# The number of records that are mapped before the size of their output is checked. It is small, because a decoded
# image may be thirty times as large as its file.
_MAPPED_AT_ONCE = 16


class Transform:
    """Applies the conversions and the mapping of a `Definition` to shards. Several threads may call `run` at once."""

    def __init__(self, definition: Definition, limits: Limits) -> None:
        self.definition: Definition = definition
        self._limits = limits
        self._change = definition.change
        self._selection = declared_fields(self._change)  # only these fields are copied out of the shard
        self._format = find_format(definition.output)
        encode = self._change if self._format.holds_examples else self._as_members
        self._serializer = Serializer(self._format, encode)

    def prepare(self) -> None:
        """Import TensorFlow if the mapping needs it, so that the first shard need not wait for the import."""
        definition = self.definition
        if definition.conversions or definition.function is None:
            import tensorflow as tf

            assert tf is not None

    def run(self, blocks: Iterable[Bytes], shard: str) -> Iterator[bytes]:
        """Yield the output for one shard, in pieces.

        Args:
            blocks: The bytes of the shard, in blocks.
            shard: The shard's URL, for errors and `__shard__`.

        Raises:
            Tar2TFError: The shard is damaged, or a record cannot be mapped. No record is skipped.
        """
        account = Account("raise")
        pieces: list[bytes] = []
        size = 0
        for records in self._records(blocks, shard, account):
            for begin in range(0, len(records), _MAPPED_AT_ONCE):
                encoded = self._serializer.encode_all(records[begin : begin + _MAPPED_AT_ONCE], account)
                for row in encoded.rows:
                    pieces += row or ()
                size += sum(encoded.sizes)
                if size >= _PIECE_BYTES:
                    yield b"".join(pieces)
                    pieces, size = [], 0
        pieces.append(self._format.end)
        yield b"".join(pieces)

    def _records(self, blocks: Iterable[Bytes], shard: str, account: Account) -> Iterator[list[Record]]:
        """Yield lists of the records of a shard. A record is yielded when all of its members have arrived."""
        limits, selection = self._limits, self._selection
        by_name = Grouper(shard, account, limits, grouping=self.definition.grouping, selection=selection)
        examples = ExampleGrouper(shard, account, limits, selection=selection)
        archive = ShardArchive(shard, limits, wanted=by_name.wants)

        def grouped(batch: Any) -> RecordBatch:
            return (examples if archive.container == "tfrecord" else by_name).add(batch)

        for block in blocks:
            for members in archive.feed(block):
                yield [*grouped(members).records]
            if archive.needs_directory:
                raise UnsupportedArchive(
                    "this zip says only at its end what is in it, and it is read as a stream here; repack it as tar",
                    shard=shard,
                    offset=0,
                )
        archive.finish()
        yield [*(examples if archive.container == "tfrecord" else by_name).finish(archive.end).records]

    def _as_members(self, record: Record) -> Record:
        """Apply the mapping to a record; return the result as the members of a tar, by the field of each member.

        Bytes and texts become members as they are. Every other value becomes an npy file.
        """
        changed: Any = self._change(record)
        if not isinstance(changed, dict):
            raise MappingError(
                f"for a tar, a dict of fields is needed, as SelectDict gives, not {type(changed).__name__}",
                shard=record["__shard__"],
                key=record["__key__"],
            )
        members: Record = {"__key__": record["__key__"]}
        for name, value in changed.items():
            if name in KEY_AND_SHARD:
                continue
            if isinstance(value, bytes | str):
                members[name] = value.encode() if isinstance(value, str) else value
            else:
                members[f"{name}.npy"] = _npy(value)
        return members


def _npy(value: Any) -> bytes:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise NoFeature(f"{type(value).__name__} has no form in an npy file; select values out of it")
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
