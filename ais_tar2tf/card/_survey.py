"""Records in, what they are like out: schema, fields, sizes, samples, and what was wrong. Constant memory, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.card._fields import FieldSurvey
from ais_tar2tf.card._numbers import Numbers
from ais_tar2tf.card._samples import Chosen, Sample
from ais_tar2tf.errors import SchemaError, Tar2TFError
from ais_tar2tf.headers import is_cut_image
from ais_tar2tf.options import Card
from ais_tar2tf.records import NAMES
from ais_tar2tf.schema import Inference, Schema

__all__ = ["Bad", "ShardSize", "Survey"]

_DIGITS = 10  # of a class' number: a longer text is none


@dataclass(frozen=True, slots=True)
class Bad:
    """One thing that was wrong: the error's kind, its text, and where."""

    kind: str
    text: str
    shard: str
    key: str = ""


@dataclass(slots=True)
class ShardSize:
    """What came out of one shard."""

    records: int = 0
    bytes: int = 0


class Survey:
    """`add` every record, `fault` every error; everything else is there at any time.

    >>> survey = Survey()
    >>> survey.add({"__key__": "a", "__shard__": "s.tar", "cls": b"7"})
    >>> survey.records, survey.fields["cls"].numbers["value"].mean
    (1, 7.0)
    """

    def __init__(self, limits: Card | None = None) -> None:
        self.limits: Card = limits or Card()
        self.records: int = 0
        self.bytes: int = 0
        self.record_sizes: Numbers = Numbers()
        self.fields: dict[str, FieldSurvey] = {}
        self.shards: dict[str, ShardSize] = {}
        self.more_shards: bool = False
        self.more_fields: bool = False
        self.faults: Counter[str] = Counter()
        self.bad: list[Bad] = []
        self.classes: Mapping[str, Sequence[str]] = {}  # what the numbers in a field stand for, where that is known
        self._inference = Inference()
        self._chosen = Chosen(self.limits)

    def add(self, record: dict[str, Any]) -> None:
        """Count a record; note as bad one that does not fit the schema of those before it, and a cut image."""
        self.records += 1
        size = 0
        for name, value in record.items():
            if name in NAMES:
                continue
            size += _size(value)
            if isinstance(value, bytes) and is_cut_image(value):
                self._note_cut(name, record)
            survey = self._field(name)
            if survey is not None:
                survey.add(value)
        self.bytes += size
        self.record_sizes.add(size)
        self._count_shard(str(record.get("__shard__", "")), size)
        self._chosen.add(record)
        try:
            self._inference.add(record)
        except SchemaError as error:
            self.fault(error, shard=str(record.get("__shard__", "")), key=str(record.get("__key__", "")))

    def _note_cut(self, name: str, record: dict[str, Any]) -> None:
        shard, key = str(record.get("__shard__", "")), str(record.get("__key__", ""))
        told = f"{shard}, record {key!r}: field {name!r} is an image that is cut: its end is missing"
        self.fault(SchemaError(told.removeprefix(", ")), shard=shard, key=key)

    def fault(self, error: Tar2TFError, *, shard: str = "", key: str = "") -> None:
        """Something that was wrong, and what it was wrong with."""
        kind = type(error).__name__
        self.faults[kind] += 1
        if len(self.bad) < self.limits.errors:
            where = shard or str(getattr(error, "shard", "") or getattr(error, "url", ""))
            self.bad.append(Bad(kind, str(error), where, key or str(getattr(error, "key", ""))))

    def class_name(self, field: str, word: str) -> str | None:
        """Return the class that a label stands for.

        >>> survey = Survey()
        >>> survey.classes = {"cls": ("ant", "bee")}
        >>> survey.class_name("cls", "1"), survey.class_name("cls", "2"), survey.class_name("id", "1")
        ('bee', None, None)
        """
        names = self.classes.get(field, ())
        is_number = word.isdecimal() and word.isascii() and len(word) < _DIGITS
        return names[int(word)] if is_number and int(word) < len(names) else None

    def check_classes(self) -> None:
        """Note it as bad when there are labels that are numbers of no class."""
        for field, names in self.classes.items():
            numbers = self.fields[field].numbers.get("value") if field in self.fields else None
            if numbers is not None and not 0 <= numbers.low <= numbers.high < len(names):
                self.fault(
                    SchemaError(
                        f"the field {field!r} has labels from {numbers.low:g} to {numbers.high:g}, but there are "
                        f"names for {len(names):,} classes, from 0"
                    )
                )

    @property
    def schema(self) -> Schema:
        return self._inference.schema

    @property
    def samples(self) -> list[Sample]:
        return self._chosen.samples

    @property
    def faulty(self) -> int:
        return sum(self.faults.values())

    def to_json(self) -> dict[str, Any]:
        """All but the samples."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "record_bytes": self.record_sizes.to_json(),
            "shards": len(self.shards),
            "schema": self.schema.to_json(),
            "classes": {
                field: {name: number for number, name in enumerate(names)} for field, names in self.classes.items()
            },
            "fields": {name: survey.to_json() for name, survey in self.fields.items()},
            "bad": {
                "count": self.faulty,
                "by_kind": dict(self.faults),
                "first": [{"kind": b.kind, "text": b.text, "shard": b.shard, "key": b.key} for b in self.bad],
            },
        }

    def _field(self, name: str) -> FieldSurvey | None:
        if name not in self.fields:
            if len(self.fields) >= self.limits.fields:
                self.more_fields = True
                return None
            self.fields[name] = FieldSurvey(name, self.limits)
        return self.fields[name]

    def _count_shard(self, shard: str, size: int) -> None:
        found = self.shards.get(shard)
        if found is None:
            if len(self.shards) >= self.limits.shards:
                self.more_shards = True
                return
            found = self.shards[shard] = ShardSize()
        found.records += 1
        found.bytes += size


def _size(value: Any) -> int:
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value)
    return int(getattr(value, "nbytes", 8))
