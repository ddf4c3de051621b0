"""The grouper of TFRecord files. It turns each payload, a serialized tf.train.Example, into one record.

Each feature of the Example becomes a field of the record:

| value of the feature | value of the field |
|---|---|
| one string | bytes, like the content of a tar's member |
| no string, or several strings | a list of bytes |
| numbers | a numpy array of float32 or int64 |

The key is the value of the feature `__key__`. If this feature is missing, or is not one non-empty string, the key
is the number of the payload in the file. A file must not contain a key twice. This module must not do I/O.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.archive import FRAME_BYTES, Members
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import DuplicateKey, MalformedExample, MissingField, RecordError
from ais_tar2tf.options import Limits
from ais_tar2tf.records import KEY_AND_SHARD, Record, RecordBatch, RecordGrouper, Selection
from ais_tar2tf.values.features import decode

__all__ = ["ExampleGrouper"]


class ExampleGrouper(RecordGrouper):
    """A grouper that makes one record of each payload.

    Args:
        shard: The URL of the file.
        account: Counts errors, and features that become neither a field nor the key.
        limits: Bounds on records and keys.
        number: The number of the first payload that will be added, counted from the start of the file.
        selection: The fields to select; None selects all.
    """

    def __init__(
        self, shard: str, account: Account, limits: Limits, *, number: int = 0, selection: Selection | None = None
    ) -> None:
        super().__init__(shard, account, limits, selection)
        self._next_number = number
        self._pending = RecordBatch()  # holds the pending record, see `RecordGrouper`

    @property
    def pending_offset(self) -> int | None:
        return self._pending.offsets[0] if self._pending.offsets else None

    @property
    def number(self) -> int:
        return self._pending.numbers[0] if self._pending.numbers else self._next_number

    def _add(self, members: Members, batch: RecordBatch) -> None:
        batch.extend(self._pending)
        self._pending = RecordBatch()
        data = members.data
        for name, offset, start, size in zip(
            members.names, members.offsets, members.starts, members.sizes, strict=True
        ):
            if self._next_number >= self._limits.keys:
                raise self._limit("keys", f"there are over {self._limits.keys:,} records", offset)
            record = self._record(name, bytes(data[start : start + size]), offset)
            self._next_number += 1
            if record is not None:
                batch.records.append(record)
                batch.offsets.append(offset)
                batch.sizes.append(size)
                batch.extents.append(size + FRAME_BYTES)
                batch.numbers.append(self._next_number - 1)
        self._pending = batch.pop_last()

    def finish(self, end: int | None = None) -> RecordBatch:
        del end
        self.raise_failure()
        batch, self._pending = self._pending, RecordBatch()
        return batch

    def _record(self, name: str, payload: bytes, offset: int) -> Record | None:
        """Return the record of a payload, or None if the record is skipped. `name` is the number of the payload."""
        try:
            features = decode(payload)
        except MalformedExample as error:
            failure = RecordError(f"its payload is no tf.train.Example ({error})", shard=self._shard, key=name)
            self._account.record_error(failure)
            return None
        if len(features) > self._limits.fields:
            raise self._limit("fields", f"record {name} has over {self._limits.fields:,} features", offset)
        fields = {field: _value(value) for field, value in features.items() if field not in KEY_AND_SHARD}
        key, is_stated = _key(features.get("__key__"), name)
        ignored = len(features) - len(fields) - is_stated
        if ignored:
            self._account.add(ignored=ignored)
        record: Record = {"__key__": key, "__shard__": self._shard}
        try:
            self._add_key(key, offset)
            if self._selection is None:
                return record | fields
            # A selection names fields in lower case, because fields of a tar are in lower case. So here, each field
            # can also be found by its name in lower case.
            by_lower_name = {field.lower(): value for field, value in fields.items()} | fields
            return record | self._selection.apply(by_lower_name, fields.keys(), self._shard, record["__key__"])
        except (DuplicateKey, MissingField) as error:
            self._account.record_error(error)
            return None

    def _add_key(self, key: str, offset: int) -> None:
        if not self._keys.add(key):
            raise DuplicateKey("the key came before in this shard", shard=self._shard, key=key)
        if self._keys.size > self._limits.key_bytes:
            raise self._limit("key_bytes", f"keys have over {self._limits.key_bytes:,} characters", offset)


def _value(feature: Any) -> Any:
    return feature[0] if isinstance(feature, list) and len(feature) == 1 else feature


def _key(feature: Any, name: str) -> tuple[str, bool]:
    """Return the key of a record, and whether `feature` states it. If `feature` does not, the key is `name`."""
    stated = _value(feature)
    is_text = isinstance(stated, bytes) and bool(stated)
    return (stated.decode("utf-8", "surrogateescape"), True) if is_text else (name, False)
