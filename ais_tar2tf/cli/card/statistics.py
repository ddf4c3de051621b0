"""The statistics for a card, collected from a stream of records: schema, fields, sizes, samples and errors.

A card is the page that `ais-tar2tf card` writes. `options.Card` bounds the memory that the statistics take. This
module must not do I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.cli.card.field_statistics import FieldStatistics
from ais_tar2tf.cli.card.number_statistics import NumberStatistics
from ais_tar2tf.cli.card.samples import CardRecord, SampleReservoir
from ais_tar2tf.errors import SchemaError, Tar2TFError
from ais_tar2tf.options import Card
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.values.file_headers import is_cut_image
from ais_tar2tf.values.schema import Inference, Schema

__all__ = ["DataError", "DataStatistics", "ShardTotals"]

_DIGITS = 10  # a label with so many digits or more is not the number of a class


@dataclass(frozen=True, slots=True)
class DataError:
    """An error in the data.

    Attributes:
        kind: The name of the error's Python class.
        text: The error's text.
        shard: The shard of the record; "" if unknown.
        key: The key of the record; "" if unknown.
    """

    kind: str
    text: str
    shard: str
    key: str = ""


@dataclass(slots=True)
class ShardTotals:
    """The number of a shard's records, and the number of bytes in their fields."""

    records: int = 0
    bytes: int = 0


class DataStatistics:
    """The statistics of a data set. Call `add` for every record, and `add_error` for every error.

    Attributes:
        limits: Bounds on the statistics that are kept.
        records: How many records were added.
        records_with_image: How many records have at least one field for which `FieldStatistics.is_image` is true.
        bytes: The number of bytes in the fields of all records.
        record_sizes: The statistics of the sizes of records. A record's size is the number of bytes in its fields.
        fields: The statistics of each field, by name, for at most `limits.fields` fields.
        shards: The number of records and bytes of each shard, by its `__shard__`, for at most `limits.shards` shards.
        more_shards: Whether there were more shards than `limits.shards`.
        more_fields: Whether there were more fields than `limits.fields`.
        errors_by_kind: How many errors there were of each Python class, by the name of the class.
        first_errors: The first errors, at most `limits.errors`.
        classes: For each field whose labels are numbers of classes, the names of the classes in the order of these
            numbers, from 0. The caller sets this attribute.

    >>> statistics = DataStatistics()
    >>> statistics.add({"__key__": "a", "__shard__": "s.tar", "cls": b"7"})
    >>> statistics.records, statistics.fields["cls"].numbers["value"].summary.mean
    (1, 7.0)
    """

    def __init__(self, limits: Card | None = None) -> None:
        self.limits: Card = limits or Card()
        self.records: int = 0
        self.records_with_image: int = 0
        self.bytes: int = 0
        self.record_sizes: NumberStatistics = NumberStatistics()
        self.fields: dict[str, FieldStatistics] = {}
        self.shards: dict[str, ShardTotals] = {}
        self.more_shards: bool = False
        self.more_fields: bool = False
        self.errors_by_kind: Counter[str] = Counter()
        self.first_errors: list[DataError] = []
        self.classes: Mapping[str, Sequence[str]] = {}
        self._inference = Inference()
        self._reservoir = SampleReservoir(self.limits)

    def add(self, record: dict[str, Any]) -> None:
        """Add a record.

        Note an error for each of its images that is cut off, and an error if the record contradicts the schema of the
        earlier records.
        """
        self.records += 1
        size, has_image = 0, False
        for name, value in record.items():
            if name in KEY_AND_SHARD:
                continue
            size += _size(value)
            if isinstance(value, bytes) and is_cut_image(value):
                self._note_cut(name, record)
            field = self._field(name)
            if field is not None:
                field.add(value)
                has_image |= field.is_image
        self.records_with_image += has_image
        self.bytes += size
        self.record_sizes.add(size)
        self._count_shard(str(record.get("__shard__", "")), size)
        self._reservoir.add(record)
        try:
            self._inference.add(record)
        except SchemaError as error:
            self.add_error(error, shard=str(record.get("__shard__", "")), key=str(record.get("__key__", "")))

    def _note_cut(self, name: str, record: dict[str, Any]) -> None:
        """Note an error: the field `name` of this record is an image that is cut off."""
        shard, key = str(record.get("__shard__", "")), str(record.get("__key__", ""))
        text = f"{shard}, record {key!r}: field {name!r} is an image that is cut: its end is missing"
        self.add_error(SchemaError(text.removeprefix(", ")), shard=shard, key=key)

    def add_error(self, error: Tar2TFError, *, shard: str = "", key: str = "") -> None:
        """Note an error. If `shard` and `key` are empty, the shard and key that the error itself names are used."""
        kind = type(error).__name__
        self.errors_by_kind[kind] += 1
        if len(self.first_errors) < self.limits.errors:
            where = shard or str(getattr(error, "shard", "") or getattr(error, "url", ""))
            self.first_errors.append(DataError(kind, str(error), where, key or str(getattr(error, "key", ""))))

    def class_name(self, field: str, label: str) -> str | None:
        """Return the name of the class whose number is `label`; None if the label is not the number of a class.

        >>> statistics = DataStatistics()
        >>> statistics.classes = {"cls": ("ant", "bee")}
        >>> statistics.class_name("cls", "1"), statistics.class_name("cls", "2"), statistics.class_name("id", "1")
        ('bee', None, None)
        """
        names = self.classes.get(field, ())
        is_number = label.isdecimal() and label.isascii() and len(label) < _DIGITS
        return names[int(label)] if is_number and int(label) < len(names) else None

    def check_classes(self) -> None:
        """Note an error for each field in `classes` with a label below 0 or above the number of the last class."""
        for field, names in self.classes.items():
            numbers = self.fields[field].numbers.get("value") if field in self.fields else None
            labels = None if numbers is None else numbers.summary
            if labels is not None and labels.count and not 0 <= labels.low <= labels.high < len(names):
                self.add_error(
                    SchemaError(
                        f"the field {field!r} has labels from {labels.low:g} to {labels.high:g}, but there are "
                        f"names for {len(names):,} classes only, which are numbered from 0"
                    )
                )

    def presence(self, field: str) -> str:
        """Return how many records have a field: "always" or a percentage; "" for a field without statistics."""
        found = self.fields.get(field)
        if found is None or not self.records:
            return ""
        return "always" if found.records == self.records else f"{found.records / self.records:.1%}"

    @property
    def schema(self) -> Schema:
        return self._inference.schema

    @property
    def samples(self) -> list[CardRecord]:
        return self._reservoir.samples

    @property
    def error_count(self) -> int:
        """The number of all errors that were noted. `first_errors` need not contain all of them."""
        return sum(self.errors_by_kind.values())

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON values. The samples and the totals of each shard are left out."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "record_bytes": self.record_sizes.to_json(),
            "shards": len(self.shards),
            "schema": self.schema.to_json(),
            "classes": {
                field: {name: number for number, name in enumerate(names)} for field, names in self.classes.items()
            },
            "fields": {name: statistics.to_json() for name, statistics in self.fields.items()},
            "bad": {
                "count": self.error_count,
                "by_kind": dict(self.errors_by_kind),
                "first": [
                    {"kind": error.kind, "text": error.text, "shard": error.shard, "key": error.key}
                    for error in self.first_errors
                ],
            },
        }

    def _field(self, name: str) -> FieldStatistics | None:
        """Return the statistics of a field; None for a new field if there are `limits.fields` fields already."""
        if name not in self.fields:
            if len(self.fields) >= self.limits.fields:
                self.more_fields = True
                return None
            self.fields[name] = FieldStatistics(name, self.limits)
        return self.fields[name]

    def _count_shard(self, shard: str, size: int) -> None:
        found = self.shards.get(shard)
        if found is None:
            if len(self.shards) >= self.limits.shards:
                self.more_shards = True
                return
            found = self.shards[shard] = ShardTotals()
        found.records += 1
        found.bytes += size


def _size(value: Any) -> int:
    """Return the size of a value in bytes, or of a text in characters. A value of unknown size counts as 8 bytes."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value)
    return int(getattr(value, "nbytes", 8))
