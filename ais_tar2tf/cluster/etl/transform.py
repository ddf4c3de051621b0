"""Blocks of a shard in, blocks of TFRecord or of another tar out: what is held is a few records. No I/O."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Bytes, ShardArchive
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.errors import MappingError, NoFeature, UnsupportedArchive
from ais_tar2tf.examples import ExampleGrouper
from ais_tar2tf.export.serializers import Serializer
from ais_tar2tf.export.tarfiles import END
from ais_tar2tf.mapping import wants
from ais_tar2tf.options import MIB, Limits
from ais_tar2tf.records import NAMES, Grouper, Record, RecordBatch, Selection

__all__ = ["Transform"]

_SENT = 1 * MIB  # bytes of output that are put together before they are handed over
_AT_ONCE = 16  # records mapped before their output is looked at: images may grow thirtyfold


class Transform:
    """One definition, for many shards: safe to use from several threads."""

    def __init__(self, definition: Definition, limits: Limits) -> None:
        self.definition: Definition = definition
        self._limits = limits
        self._change = definition.change
        self._selection = self._pushed_down()
        encode = self._change if definition.output == "tfrecord" else self._as_members
        self._serializer = Serializer(definition.output, encode)

    def prepare(self) -> None:
        """Import what the mapping will: TensorFlow takes seconds."""
        definition = self.definition
        if definition.conversions or definition.function is None:
            import tensorflow as tf

            assert tf is not None

    def run(self, blocks: Iterable[Bytes], shard: str) -> Iterator[bytes]:
        """The output for one shard, whose URL is `shard`; whatever is wrong with it is raised."""
        account = Account("raise")
        pieces: list[bytes] = []
        size = 0
        for records in self._records(blocks, shard, account):
            for begin in range(0, len(records), _AT_ONCE):
                encoded = self._serializer.encode_all(records[begin : begin + _AT_ONCE], account)
                for row in encoded.rows:
                    pieces += row or ()
                size += sum(encoded.sizes)
                if size >= _SENT:
                    yield b"".join(pieces)
                    pieces, size = [], 0
        if self.definition.output == "tar":
            pieces.append(END)
        yield b"".join(pieces)

    def _records(self, blocks: Iterable[Bytes], shard: str, account: Account) -> Iterator[list[Record]]:
        limits, selection = self._limits, self._selection
        by_name = Grouper(shard, account, limits, grouping=self.definition.grouping, selection=selection)
        examples = ExampleGrouper(shard, account, limits, selection=selection)
        archive = ShardArchive(shard, limits, wanted=by_name.wants)

        def grouped(batch: Any) -> RecordBatch:
            return (examples if archive.container == "tfrecord" else by_name).add(batch)

        for block in blocks:
            for members in archive.feed(block):
                yield [*grouped(members).records]
            if archive.missing:
                raise UnsupportedArchive(
                    "this zip says only at its end what is in it, and it is read as a stream here; repack it as tar",
                    shard=shard,
                    offset=0,
                )
        archive.finish()
        yield [*(examples if archive.container == "tfrecord" else by_name).finish(archive.end).records]

    def _pushed_down(self) -> Selection | None:
        """The fields that are needed, as a local export asks for them: the others are skipped."""
        return wants(self._change)

    def _as_members(self, record: Record) -> Record:
        """For a tar: bytes and text as they are, all else as npy."""
        changed: Any = self._change(record)
        if not isinstance(changed, dict):
            raise MappingError(
                f"for a tar, a dict of fields is needed, as SelectDict gives, not {type(changed).__name__}",
                shard=record["__shard__"],
                key=record["__key__"],
            )
        members: Record = {"__key__": record["__key__"]}
        for name, value in changed.items():
            if name in NAMES:
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
