"""Serializers, which encode records as the bytes of a record file. They can be pickled for worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import (
    MalformedExample,
    MissingField,
    NoFeature,
    OptionError,
    SchemaError,
    Tar2TFError,
)
from ais_tar2tf.recordfiles.formats.base import RecordFormat
from ais_tar2tf.recordfiles.formats.rows import Row, example_rows
from ais_tar2tf.records import Record, listed_fields
from ais_tar2tf.values.default_mappings import LABEL
from ais_tar2tf.values.mapping_errors import mapping_error
from ais_tar2tf.values.schema import NUMBER_DTYPES, number_of_text

__all__ = ["Encoded", "Serializer", "Typed"]

_WHERE_SOME_LACK_IT = "; where some records lack it, give schema= with a Field(…, optional=True) instead"


@dataclass(frozen=True)
class Typed:
    """A `record_to_example` that parses some fields as numbers and keeps all others as bytes."""

    types: tuple[tuple[str, str], ...]  # names of fields, and the types of their numbers

    @classmethod
    def from_option(cls, types: Mapping[str, Any]) -> Typed:
        """Check the option `types` of an export and return the function for it.

        Raises:
            OptionError: A type is not one of the numbers that record files hold.
        """
        return cls(tuple(sorted((name, _number_type(name, how)) for name, how in types.items())))

    @property
    def label(self) -> str | None:
        """The name of the field that holds class numbers as integers; None if there is none."""
        return LABEL if any(name == LABEL and how.startswith(("int", "uint")) for name, how in self.types) else None

    def __call__(self, record: Record) -> dict[str, Any]:
        """Return the fields of a record, with numbers for the fields in `types`."""
        fields = {name: value for name, value in record.items() if name != "__shard__"}
        for name, dtype in self.types:
            if name not in fields:
                raise MissingField(
                    f"types= names field {name!r}, and there are: {listed_fields(record)}"
                    f"{suggestion(name, fields) or _WHERE_SOME_LACK_IT}",
                    shard=record["__shard__"],
                    key=record["__key__"],
                )
            try:
                if not isinstance(fields[name], bytes):
                    raise SchemaError("it is no text: leave it out of types=, and it is written as it is")  # noqa: TRY301
                fields[name] = number_of_text(fields[name], dtype)
            except SchemaError as error:
                raise SchemaError(
                    f"{record['__shard__']}, record {record['__key__']!r}, field {name!r}: {error}"
                ) from None
        return fields


def _number_type(name: str, how: Any) -> str:
    dtype = str(getattr(how, "name", how) if not isinstance(how, type) else how.__name__)
    dtype = {"int": "int64", "float": "float32"}.get(dtype, dtype)
    if dtype not in NUMBER_DTYPES:
        raise OptionError(
            f"types= says {how!r} of field {name!r}; numbers in record files are {', '.join(NUMBER_DTYPES)}"
        )
    return dtype


@dataclass(frozen=True)
class Encoded:
    """The encoded records of a chunk."""

    rows: Sequence[Row | None]  # with frames, as written to a file; None for records that failed and were skipped
    sizes: Sequence[int]  # of the rows; 0 for records that failed
    examples: Sequence[bytes | None] | None = None  # rows without frames; None if all fields are written as bytes


@dataclass(frozen=True)
class Serializer:
    """Encodes records for files of one format.

    `encode` returns the value to write for a record: a tf.train.Example, or for a tar a dict of fields. Without
    `encode`, the fields of the record are written as bytes.
    """

    format: RecordFormat
    encode: Callable[[Record], Any] | None = None

    @property
    def writes_fields(self) -> bool:
        """Whether the fields of a record are written as the bytes of a tf.train.Example, without being read."""
        return self.encode is None and self.format.holds_examples

    def encode_all(self, records: Sequence[Record], account: Account) -> Encoded:
        """Encode `records`. A record that fails is skipped or raised, as the `on_error` of `account` says."""
        if self.writes_fields:
            return Encoded(*self.format.framed(*example_rows(records)))
        rows = [self._row_or_none(record, account) for record in records]
        examples = [None if row is None else row[0] for row in rows] if self.format.holds_examples else None
        encoded = [row for row in rows if row is not None]
        framed = zip(*self.format.framed(encoded, [sum(map(len, row)) for row in encoded]), strict=True)
        pairs = [(None, 0) if row is None else next(framed) for row in rows]
        return Encoded([row for row, _ in pairs], [size for _, size in pairs], examples)

    def _row_or_none(self, record: Record, account: Account) -> Row | None:
        try:
            return self.format.row(record, record if self.encode is None else self.encode(record))
        except (MalformedExample, NoFeature) as error:
            account.take_back(mapping_error(error, record))
        except Tar2TFError as error:
            account.take_back(error)
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything
            account.take_back(mapping_error(error, record))
        return None
