"""Records → the bytes that a file holds of each. What a worker process needs of this survives pickling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.errors import (
    MalformedExample,
    MappingError,
    MissingField,
    NoFeature,
    OptionError,
    SchemaError,
    Tar2TFError,
)
from ais_tar2tf.export.raw import Row, example_rows, framed_rows
from ais_tar2tf.export.tarfiles import record_members
from ais_tar2tf.mapping import LABEL, mapping_error
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import Record, said_fields
from ais_tar2tf.schema import NUMBERS, number_of_text

__all__ = ["Encoded", "Serializer", "Typed", "serialized"]


_WHERE_SOME_LACK_IT = "; where some records lack it, give schema= with a Field(…, optional=True) instead"


def serialized(example: Any) -> bytes:
    """A tf.train.Example, its bytes, or a dict of values, as bytes."""
    from ais_tar2tf import features

    if isinstance(example, bytes):
        features.decode(example)  # whoever reads the files would stumble over what is no Example
        return example
    if isinstance(example, dict):
        return features.encode(example)
    if hasattr(example, "SerializeToString"):
        return example.SerializeToString()
    raise NoFeature(
        f"record_to_example returned {type(example).__name__}; a tf.train.Example, its bytes or a dict is expected"
    )


@dataclass(frozen=True)
class Typed:
    """A `record_to_example` that writes the fields named in `types` as numbers, and all others as their bytes."""

    types: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, types: Mapping[str, Any]) -> Typed:
        """Check what the user says.

        Raises:
            OptionError: A type is none that a record file holds as a number.
        """
        return cls(tuple(sorted((name, _number_type(name, how)) for name, how in types.items())))

    @property
    def label(self) -> str | None:
        """The field whose numbers stand for classes, where it is written as a number."""
        return LABEL if any(name == LABEL and how.startswith(("int", "uint")) for name, how in self.types) else None

    def __call__(self, record: Record) -> dict[str, Any]:
        """Return the fields of a record with their numbers."""
        fields = {name: value for name, value in record.items() if name != "__shard__"}
        for name, dtype in self.types:
            if name not in fields:
                raise MissingField(
                    f"types= names field {name!r}, and there are: {said_fields(record)}"
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
    said = str(getattr(how, "name", how) if not isinstance(how, type) else how.__name__)
    said = {"int": "int64", "float": "float32"}.get(said, said)
    if said not in NUMBERS:
        raise OptionError(f"types= says {how!r} of field {name!r}; numbers in record files are {', '.join(NUMBERS)}")
    return said


@dataclass(frozen=True)
class Encoded:
    """The bytes of each record, None where it failed and was skipped; and the Examples, where they say more."""

    rows: Sequence[Row | None]
    sizes: Sequence[int]  # 0 where there is no row
    examples: Sequence[bytes | None] | None = None


@dataclass(frozen=True)
class Serializer:
    """From a record to its bytes in a file of the kind `kind`.

    `encode` gives a tf.train.Example's bytes; for a tar, `change` gives the record that is written.
    """

    kind: str
    encode: Callable[[Record], Any] | None = None

    def encode_all(self, records: Sequence[Record], account: Account) -> Encoded:
        """All of `records`; those that fail are dealt with as `on_error` says."""
        if self.encode is None and self.kind != "tar":
            raw, raw_sizes = example_rows(records)
            return Encoded(*(framed_rows(raw, raw_sizes) if self.kind == "tfrecord" else (raw, raw_sizes)))
        rows = [self._row_or_none(record, account) for record in records]
        examples = None if self.kind == "tar" else [None if row is None else row[0] for row in rows]
        sizes = [0 if row is None else sum(map(len, row)) for row in rows]
        if self.kind == "tfrecord":
            kept = [row for row in rows if row is not None]
            framed = iter(zip(*framed_rows(kept, [len(row[0]) for row in kept]), strict=True))
            pairs = [(None, 0) if row is None else next(framed) for row in rows]
            return Encoded([row for row, _ in pairs], [size for _, size in pairs], examples)
        return Encoded(rows, sizes, examples)

    def _row(self, record: Record) -> Row:
        if self.kind == "tar":
            return record_members(record if self.encode is None else _as_record(self.encode(record), record))
        assert self.encode is not None
        return (serialized(self.encode(record)),)

    def _row_or_none(self, record: Record, account: Account) -> Row | None:
        try:
            return self._row(record)
        except (MalformedExample, NoFeature) as error:
            account.take_back(mapping_error(error, record))
        except Tar2TFError as error:
            account.take_back(error)
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises
            account.take_back(mapping_error(error, record))
        return None


def _as_record(changed: Any, record: Record) -> Record:
    if not isinstance(changed, dict):
        raise MappingError(
            f"for a tar, a record's fields are expected, a dict of bytes, not {type(changed).__name__}",
            shard=record["__shard__"],
            key=record["__key__"],
        )
    return {"__key__": record["__key__"], **changed}
