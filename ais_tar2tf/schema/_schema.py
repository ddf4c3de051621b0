"""All fields of a record: as a table, as JSON, as one of two, and as what writes and reads its tf.train.Examples."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ais_tar2tf.documents import parse_json
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.features import decode, encode
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import NAMES
from ais_tar2tf.schema._field import Field
from ais_tar2tf.schema._storage import feature_names, restore, store
from ais_tar2tf.structure import Mismatch, anything, boolean, fields, listed, maybe, whole

__all__ = ["Schema"]

_VERSION = 1
_HEADINGS = ("field", "type", "stored as", "")
_SHOWN_WORDS = 3  # of a vocabulary, in a table

_VERSIONED = fields({"version": anything})
_PLAIN = fields({"fields": listed(Field.from_json)}, {"records": maybe(whole()), "sampled": boolean})


@dataclass(frozen=True)
class Schema:
    """What records are: their fields, of how many records that was found out, and whether those were but the first.

    >>> schema = Schema((Field("label", "int64"), Field("x", "float32", (2,))))
    >>> schema.decode(schema.encode({"label": 3, "x": [0.5, 1.5]}))
    {'label': 3, 'x': array([0.5, 1.5], dtype=float32)}
    """

    fields: tuple[Field, ...] = ()
    records: int | None = None  # None: it was said, not found out
    sampled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        holders: dict[str, str] = {}
        for field in self.fields:
            for name in feature_names(field):
                if name in holders:
                    raise SchemaError(f"fields {holders[name]!r} and {field.name!r} are both stored as {name!r}")
                holders[name] = field.name

    # As a collection.

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def __getitem__(self, name: str) -> Field:
        if name not in self._by_name:
            there = ", ".join(self._by_name) or "none"
            raise SchemaError(f"there is no field {name!r}; there are: {there}{suggestion(name, self._by_name)}")
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def names(self) -> list[str]:
        """The fields' names, in order."""
        return list(self._by_name)

    def with_field(self, field: Field) -> Schema:
        """The same with `field` in the place of the one of its name, or behind the others."""
        if field.name not in self:
            return replace(self, fields=(*self.fields, field))
        return replace(self, fields=tuple(field if field.name == each.name else each for each in self.fields))

    def select(self, names: Sequence[str]) -> Schema:
        """Only these fields."""
        return replace(self, fields=tuple(self[name] for name in names))

    def merge(self, other: Schema) -> Schema:
        """One schema for records of either; a field of only one of them is optional."""
        fields = [
            field.merge(other[field.name]) if field.name in other else _optional(field, other)
            for field in self.fields
        ]
        fields += [_optional(field, self) for field in other.fields if field.name not in self]
        known = self.records is not None and other.records is not None
        records = (self.records or 0) + (other.records or 0) if known else None
        return Schema(tuple(fields), records=records, sampled=self.sampled or other.sampled)

    # As text.

    @property
    def origin(self) -> str:
        """Of how many records it was found out, in words."""
        if self.records is None:
            return "as it was said"
        if self.records == 1:
            return "from a sample: the first record" if self.sampled else "from the one record"
        return (
            f"from a sample: the first {self.records:,} records"
            if self.sampled
            else f"from all {self.records:,} records"
        )

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [(field.name, field.type_text, field.encoding_text, _notes(field)) for field in self.fields]

    def __str__(self) -> str:
        rows = [_HEADINGS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([f"{_count(self)}, {self.origin}", *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        head = "".join(f"<th>{each}</th>" for each in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        caption = f"<caption style='white-space:nowrap'>{_count(self)}, {self.origin}</caption>"
        return f"<table style='text-align:left'>{caption}<tr>{head}</tr>{body}</table>"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        fields = [field.to_json() for field in self.fields]
        return {"version": _VERSION, "records": self.records, "sampled": self.sampled, "fields": fields}

    def to_text(self) -> str:
        """As JSON text, the same for the same schema."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, said: Mapping[str, Any] | str | bytes) -> Schema:
        """What `to_json` or `to_text` gave."""
        plain = parse_json(said, where="the schema", fail=SchemaError) if isinstance(said, str | bytes) else said
        try:
            if _VERSIONED(plain)["version"] != _VERSION:
                raise SchemaError(f"a schema of version {plain['version']!r}; this release reads {_VERSION}")
            return cls(**_PLAIN(plain))
        except Mismatch as mismatch:
            raise SchemaError(f"this is no schema: {mismatch}") from None

    # As a codec.

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """A serialized tf.train.Example of a record that fits; a SchemaError names the record and the field."""
        try:
            return encode(self._features(record))
        except SchemaError as error:
            raise SchemaError(f"{_place(record)}{error}") from error

    def _features(self, record: Mapping[str, Any]) -> dict[str, Any]:
        features: dict[str, Any] = {}
        for field in self.fields:
            value = record.get(field.name)
            if value is not None:
                features.update(store(field, value))
            elif not field.optional:
                raise SchemaError(
                    f"field {field.name!r} is missing, the schema says {field.type_text}; say optional=True of a "
                    "field that some records lack"
                )
        if not record.keys() <= self._by_name.keys():
            self._refuse_unknown(record)
        return features

    def check(self, record: Mapping[str, Any]) -> None:
        """Raise what `encode` raises on a record that does not fit."""
        self.encode(record)

    def _refuse_unknown(self, record: Mapping[str, Any]) -> None:
        unknown = [name for name in record if name not in self._by_name and name not in NAMES]
        if unknown:
            raise SchemaError(
                f"field {unknown[0]!r} is not in the schema; there are: {', '.join(self.names)}; add it by "
                "with_field(), or leave it out by src.select()"
            )

    def decode(self, data: bytes) -> dict[str, Any]:
        """The record that a serialized tf.train.Example holds; files are still the bytes that they came as."""
        found = decode(data)
        record: dict[str, Any] = {}
        for field in self.fields:
            if field.optional and feature_names(field)[0] not in found:
                continue
            record[field.name] = restore(field, found)
        return record


def _optional(field: Field, other: Schema) -> Field:
    return field if other.records == 0 else replace(field, optional=True)


def _place(record: Mapping[str, Any]) -> str:
    if "__key__" not in record:
        return ""
    return f"{record.get('__shard__', '')}, record {record['__key__']!r}: ".removeprefix(", ")


def _count(schema: Schema) -> str:
    return "1 field" if len(schema) == 1 else f"{len(schema)} fields"


def _notes(field: Field) -> str:
    notes = ["optional"] if field.optional else []
    words = field.vocabulary
    if words is not None:
        shown = ", ".join(words[:_SHOWN_WORDS]) + (", …" if len(words) > _SHOWN_WORDS else "")
        notes.append(f"{len(words):,} labels: {shown}")
    return "; ".join(notes)
