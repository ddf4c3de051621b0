"""Payloads of a TFRecord file → records, whose fields are the features of a tf.train.Example. No I/O.

`__key__` is the feature of that name if there is one, else the record's number in its file; no key may come twice. A
feature of one string is its bytes, as a member of a tar is; one of several, or of none, is the list of them; numbers
are numpy arrays, float32 or int64.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.archive import FRAME_BYTES, Members
from ais_tar2tf.errors import (
    ArchiveError,
    DuplicateKey,
    LimitExceeded,
    MalformedExample,
    MissingField,
    RecordError,
)
from ais_tar2tf.features import decode
from ais_tar2tf.options import Limits
from ais_tar2tf.records import NAMES, Record, RecordBatch, Selection
from ais_tar2tf.records.keys import Keys

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
        self._seen = Keys()
        self._failure: ArchiveError | RecordError | None = None  # to be raised behind the records before it

    @property
    def kept_back_at(self) -> int | None:
        return self._kept.offsets[0] if self._kept.offsets else None

    @property
    def number(self) -> int:
        """Of payloads before the one that is kept back."""
        return self._kept.numbers[0] if self._kept.numbers else self._number

    def add(self, members: Members) -> RecordBatch:
        """Return the records that are whole now. An error is raised behind the records that come before it."""
        self.raise_failure()
        batch, self._kept = self._kept, RecordBatch()
        try:
            self._add(members, batch)
        except (ArchiveError, RecordError) as error:
            self._failure = error
            if not batch.records:
                raise
            return batch
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

    def _add(self, members: Members, batch: RecordBatch) -> None:
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

    @property
    def failed(self) -> bool:
        """Whether an error came while records were added."""
        return self._failure is not None

    def finish(self, end: int | None = None) -> RecordBatch:
        """The last record; `end` says nothing new here."""
        del end
        self.raise_failure()
        batch, self._kept = self._kept, RecordBatch()
        return batch

    def raise_failure(self) -> None:
        """Raise the error that came behind the records that were returned last."""
        if self._failure is not None:
            raise self._failure

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
        key, is_stated = _key(found.get("__key__"), number)
        dropped = len(found) - len(fields) - is_stated
        if dropped:
            self._account.add(ignored=dropped)
        record: Record = {"__key__": key, "__shard__": self._shard}
        try:
            self._check_new(key, offset)
            if self._selection is None:
                return record | fields
            any_case = {name.lower(): value for name, value in fields.items()} | fields
            return record | self._selection.of(any_case, fields.keys(), self._shard, record["__key__"])
        except (DuplicateKey, MissingField) as error:
            self._account.record_error(error)
            return None

    def _check_new(self, key: str, offset: int) -> None:
        if not self._seen.add(key):
            raise DuplicateKey("the key came before in this shard", shard=self._shard, key=key)
        if self._seen.size > self._limits.key_bytes:
            raise LimitExceeded(
                f"keys have over {self._limits.key_bytes:,} characters, Limits.key_bytes",
                shard=self._shard,
                offset=offset,
            )

    def _check_number(self, offset: int) -> None:
        if self._number >= self._limits.keys:
            raise LimitExceeded(
                f"there are over {self._limits.keys:,} records, Limits.keys", shard=self._shard, offset=offset
            )


def _value(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _key(feature: Any, number: str) -> tuple[str, bool]:
    """Return the record's key, and whether its feature states it: else the key is the record's number."""
    stated = _value(feature)
    is_text = isinstance(stated, bytes) and bool(stated)
    return (stated.decode("utf-8", "surrogateescape"), True) if is_text else (number, False)
