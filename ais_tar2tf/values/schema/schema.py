"""`Schema`: the fields of records. It converts itself to a table and to JSON, and records to tf.train.Examples."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.base.documents.structure import Mismatch, anything, boolean, fields, listed, maybe, whole
from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.values.features import decode, encode
from ais_tar2tf.values.schema.field import Field
from ais_tar2tf.values.schema.storage import feature_names, restore, store

__all__ = ["Schema", "record_prefix"]

_VERSION = 1
_HEADINGS = ("field", "type", "stored as", "")
_SHOWN_WORDS = 3  # words of a vocabulary that a table shows

_VERSIONED = fields({"version": anything})
_DOCUMENT = fields({"fields": listed(Field.from_json)}, {"records": maybe(whole()), "sampled": boolean})


@dataclass(frozen=True)
class Schema:
    """The fields of records: their types, their shapes, and how they are stored.

    Attributes:
        fields: The fields of a record.
        records: The number of records from which the schema was inferred; None if it was declared.
        sampled: Whether the schema was inferred from a sample: the first records only.

    >>> schema = Schema((Field("label", "int64"), Field("x", "float32", (2,))))
    >>> schema.decode(schema.encode({"label": 3, "x": [0.5, 1.5]}))
    {'label': 3, 'x': array([0.5, 1.5], dtype=float32)}
    """

    fields: tuple[Field, ...] = ()
    records: int | None = None
    sampled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        owners: dict[str, str] = {}
        for field in self.fields:
            for name in feature_names(field):
                if name in owners:
                    raise SchemaError(f"fields {owners[name]!r} and {field.name!r} are both stored as {name!r}")
                owners[name] = field.name

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def __getitem__(self, name: str) -> Field:
        if name not in self._by_name:
            names = ", ".join(self._by_name) or "none"
            raise SchemaError(f"there is no field {name!r}; there are: {names}{suggestion(name, self._by_name)}")
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        return list(self._by_name)

    def with_field(self, field: Field) -> Schema:
        """Return a schema in which `field` replaces the field of the same name, or is appended.

        Args:
            field: The new field.
        """
        if field.name not in self:
            return replace(self, fields=(*self.fields, field))
        return replace(self, fields=tuple(field if field.name == old.name else old for old in self.fields))

    def select(self, names: Sequence[str]) -> Schema:
        """Return a schema of some of the fields.

        Args:
            names: The names of the fields, in the new order.

        Raises:
            SchemaError: The schema has no field of a name.
        """
        return replace(self, fields=tuple(self[name] for name in names))

    def merge(self, other: Schema) -> Schema:
        """Return one schema for the records of this schema and of another.

        A field that some of the records lack becomes optional.

        Args:
            other: The other schema.

        Raises:
            SchemaError: No type or encoding holds the values that a field has in both schemas.
        """
        fields = [
            field.merge(other[field.name]) if field.name in other else _optional(field, other)
            for field in self.fields
        ]
        fields += [_optional(field, self) for field in other.fields if field.name not in self]
        both_counted = self.records is not None and other.records is not None
        records = (self.records or 0) + (other.records or 0) if both_counted else None
        return Schema(tuple(fields), records=records, sampled=self.sampled or other.sampled)

    @property
    def origin(self) -> str:
        """The origin of the schema as text: declared, or inferred from a number of records."""
        if self.records is None:
            return "as declared"
        if self.records == 1:
            return "from a sample: the first record" if self.sampled else "from the one record"
        return f"from {'a sample: the first' if self.sampled else 'all'} {self.records:,} records"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [(field.name, field.type_text, field.encoding_text, _notes(field)) for field in self.fields]

    def __str__(self) -> str:
        rows = [_HEADINGS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([f"{_field_count(self)}, {self.origin}", *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        """Return the schema as a table in HTML, for notebooks."""
        head = "".join(f"<th>{each}</th>" for each in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        caption = f"<caption style='white-space:nowrap'>{_field_count(self)}, {self.origin}</caption>"
        return f"<table style='text-align:left'>{caption}<tr>{head}</tr>{body}</table>"

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a JSON object."""
        fields = [field.to_json() for field in self.fields]
        return {"version": _VERSION, "records": self.records, "sampled": self.sampled, "fields": fields}

    def to_text(self) -> str:
        """Return the schema as JSON text. Equal schemas give equal text."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, said: Mapping[str, Any] | str | bytes) -> Schema:
        """Return the schema that a document of `to_json` or `to_text` describes.

        Args:
            said: The JSON object, or JSON text.

        Raises:
            SchemaError: The document is malformed, or has another version.
        """
        document = parse_json(said, where="the schema", fail=SchemaError) if isinstance(said, str | bytes) else said
        try:
            if _VERSIONED(document)["version"] != _VERSION:
                raise SchemaError(f"a schema of version {document['version']!r}; this release reads {_VERSION}")
            return cls(**_DOCUMENT(document))
        except Mismatch as mismatch:
            raise SchemaError(f"this is no schema: {mismatch}") from None

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Encode a record as a serialized tf.train.Example.

        Args:
            record: Values by field name. `__key__` and `__shard__` are ignored.

        Raises:
            SchemaError: The record does not fit the schema. The error names the record and the field.
        """
        try:
            return encode(self._features(record))
        except SchemaError as error:
            raise SchemaError(f"{record_prefix(record)}{error}") from error

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
        """Check that a record fits this schema.

        Args:
            record: Values by field name.

        Raises:
            SchemaError: The record does not fit the schema. The error names the record and the field.
        """
        self.encode(record)

    def _refuse_unknown(self, record: Mapping[str, Any]) -> None:
        unknown = [name for name in record if name not in self._by_name and name not in KEY_AND_SHARD]
        if unknown:
            raise SchemaError(
                f"field {unknown[0]!r} is not in the schema; there are: {', '.join(self.names)}; add it by "
                "with_field(), or leave it out by src.select()"
            )

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decode a serialized tf.train.Example into a record. Files stay encoded, as bytes.

        Args:
            data: The serialized Example.

        Raises:
            SchemaError: The Example does not hold the fields of this schema.
            MalformedExample: `data` is no tf.train.Example.
        """
        features = decode(data)
        return {
            field.name: restore(field, features)
            for field in self.fields
            if not field.optional or feature_names(field)[0] in features
        }


def _optional(field: Field, other: Schema) -> Field:
    return field if other.records == 0 else replace(field, optional=True)


def record_prefix(record: Mapping[str, Any]) -> str:
    """Return the beginning of an error text with the shard and key of a record; "" for a record without a key."""
    if "__key__" not in record:
        return ""
    return f"{record.get('__shard__', '')}, record {record['__key__']!r}: ".removeprefix(", ")


def _field_count(schema: Schema) -> str:
    return "1 field" if len(schema) == 1 else f"{len(schema)} fields"


def _notes(field: Field) -> str:
    notes = ["optional"] if field.optional else []
    words = field.vocabulary
    if words is not None:
        shown = ", ".join(words[:_SHOWN_WORDS]) + (", …" if len(words) > _SHOWN_WORDS else "")
        notes.append(f"{len(words):,} labels: {shown}")
    return "; ".join(notes)
