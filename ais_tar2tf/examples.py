"""Payloads of a TFRecord file → records, whose fields are the features of a tf.train.Example. No I/O.

`__key__` is the feature of that name if there is one, else the record's number in its file. A feature of one string
is its bytes, as a member of a tar is; one of several, or of none, is the list of them; numbers are numpy arrays,
float32 or int64.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.archive import FRAME_BYTES, Members
from ais_tar2tf.errors import LimitExceeded, MalformedExample, MissingField, RecordError
from ais_tar2tf.features import decode
from ais_tar2tf.options import Limits
from ais_tar2tf.records import NAMES, Record, RecordBatch, Selection

__all__ = ["ExampleGrouper"]


class ExampleGrouper:
    """A record for every payload; the same calls as a Grouper's, and like it, it keeps the last one back: a position
    is always that of a record, never the file's end.
    """

    def __init__(
        self, shard: str, account: Account, limits: Limits, *, number: int = 0, selection: Selection | None = None
    ) -> None:
        self._shard = shard
        self._account = account
        self._limits = limits
        self._selection = selection
        self._number = number  # of payloads before the next
        self._kept = RecordBatch()  # one record, or none

    @property
    def kept_back_at(self) -> int | None:
        return self._kept.offsets[0] if self._kept.offsets else None

    @property
    def number(self) -> int:
        """Of payloads before the one that is kept back."""
        return self._kept.numbers[0] if self._kept.numbers else self._number

    def add(self, members: Members) -> RecordBatch:
        batch, self._kept = self._kept, RecordBatch()
        data = members.data
        for key, offset, start, size in zip(
            members.names, members.offsets, members.starts, members.sizes, strict=True
        ):
            self._check_number(offset)
            record = self._record(key, bytes(data[start : start + size]), offset)
            self._number += 1
            if record is not None:
                batch.records.append(record)
                batch.offsets.append(offset)
                batch.sizes.append(size)
                batch.extents.append(size + FRAME_BYTES)
                batch.numbers.append(self._number - 1)
        if batch.records:
            self._kept = RecordBatch(
                batch.records[-1:],
                [batch.offsets.pop()],
                [batch.sizes.pop()],
                [batch.extents.pop()],
                [batch.numbers.pop()],
            )
            batch.records = batch.records[:-1]
        return batch

    def finish(self, end: int | None = None) -> RecordBatch:
        """The last record; `end` says nothing new here."""
        del end
        batch, self._kept = self._kept, RecordBatch()
        return batch

    def _record(self, number: str, payload: bytes, offset: int) -> Record | None:
        """None when it is skipped."""
        try:
            found = decode(payload)
        except MalformedExample as error:
            failure = RecordError(f"its payload is no tf.train.Example ({error})", shard=self._shard, key=number)
            self._account.record_error(failure)
            return None
        if len(found) > self._limits.fields:
            raise LimitExceeded(
                f"record {number} has over {self._limits.fields:,} features, Limits.fields",
                shard=self._shard,
                offset=offset,
            )
        fields = {name: _value(value) for name, value in found.items() if name not in NAMES}
        record: Record = {"__key__": _key(found.get("__key__"), number), "__shard__": self._shard}
        if self._selection is None:
            return record | fields
        try:
            any_case = {name.lower(): value for name, value in fields.items()} | fields
            return record | self._selection.of(any_case, fields.keys(), self._shard, record["__key__"])
        except MissingField as error:
            self._account.record_error(error)
            return None

    def _check_number(self, offset: int) -> None:
        if self._number >= self._limits.keys:
            raise LimitExceeded(
                f"there are over {self._limits.keys:,} records, Limits.keys", shard=self._shard, offset=offset
            )


def _value(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _key(feature: Any, number: str) -> str:
    """What the record says its key is, else its number."""
    stated = _value(feature)
    return stated.decode("utf-8", "surrogateescape") if isinstance(stated, bytes) and stated else number
