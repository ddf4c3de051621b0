"""Records as a mapping in Python gets them: with the fields that each of them has, as `records()` gives them.

Chunks are columns of the fields that a sample showed. What a record has unlike these goes along as one more column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ais_tar2tf.errors import MissingField
from ais_tar2tf.features import decode, encode
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import NAMES, Record, Records, said_fields

__all__ = ["DIFFERENCE", "GivenRecord", "NoSuchField", "differences", "given"]

DIFFERENCE = ""
"""The column of differences; no field is called so."""

_LACKS, _HAS = "-", "+"  # before the name of a field in a difference


class NoSuchField(KeyError):
    """A mapping in Python asked for a field that its record does not have."""

    def of(self, record: Record) -> MissingField:
        """The error that names the record."""
        name = self.args[0]
        fields = [each for each in record if each not in NAMES]
        advice = suggestion(str(name), fields) or "; ask `in` or get() for a field that may be absent"
        return MissingField(
            f"the mapping reads field {name!r}, which this record does not have; there are: {said_fields(fields)}"
            f"{advice}",
            shard=record["__shard__"],
            key=record["__key__"],
        )


class GivenRecord(dict[str, Any]):
    """A record, as a dict whose KeyError tells that a field of it was asked for."""

    def __missing__(self, name: str) -> Any:
        raise NoSuchField(name)

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and not default:
            raise NoSuchField(name)
        return super().pop(name, *default)

    def copy(self) -> GivenRecord:
        return GivenRecord(self)


def differences(chunk: Records, names: Sequence[str]) -> list[bytes]:
    """Return, for each record, which of the fields `names` it lacks and what it has beside them; b"" for neither."""
    same, entries = set(names), chunk.entries
    if entries is not None and same == set(entries):
        return [b""] * len(chunk)
    return [b"" if record.keys() == same else _difference(record, names) for record in chunk]


def _difference(record: Record, names: Sequence[str]) -> bytes:
    lacking = {_LACKS + _escaped(name): b"" for name in names if name not in record}
    return encode(lacking | {_HAS + _escaped(name): value for name, value in record.items() if name not in names})


def _escaped(name: str) -> str:
    """A field's name as text that UTF-8 can write: its bytes need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("latin-1")


def given(names: Iterable[str], values: Sequence[bytes], difference: bytes) -> GivenRecord:
    """Return the record that a row of the columns and its difference were made of."""
    record = GivenRecord(zip(names, values, strict=True))
    for name in NAMES:
        record[name] = record[name].decode("utf-8", "surrogateescape")
    for marked, value in decode(difference).items() if difference else ():
        mark, name = marked[:1], marked[1:].encode("latin-1").decode("utf-8", "surrogateescape")
        if mark == _LACKS:
            del record[name]
        else:
            record[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
    return record
