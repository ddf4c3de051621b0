"""`PythonRecord`: the record that a mapping in Python gets, with the same fields as a record of `records()`.

TensorFlow passes records to the mapping as columns: one column for each field of the sample. A record may lack some
of these fields, and may have others. One more column holds these differences, so that the record can be restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import MissingField
from ais_tar2tf.records import KEY_AND_SHARD, Record, Records, listed_fields
from ais_tar2tf.values.features import decode, encode

__all__ = ["DIFFERENCE_COLUMN", "NoSuchFieldError", "PythonRecord", "field_differences", "unpack_record"]

DIFFERENCE_COLUMN = ""
"""The name of the column of `field_differences`; no field has an empty name."""

_LACKS, _HAS = "-", "+"  # precede the name of a field in a difference


class NoSuchFieldError(KeyError):
    """Raised when a mapping in Python reads a field that its record lacks."""

    def with_record(self, record: Record) -> MissingField:
        """Return the error for the user, which names the record."""
        name = self.args[0]
        fields = [each for each in record if each not in KEY_AND_SHARD]
        advice = suggestion(str(name), fields) or "; ask `in` or get() for a field that may be absent"
        return MissingField(
            f"the mapping reads field {name!r}, which this record does not have; there are: {listed_fields(fields)}"
            f"{advice}",
            shard=record["__shard__"],
            key=record["__key__"],
        )


class PythonRecord(dict[str, Any]):
    """A record, as a dict that raises `NoSuchFieldError` for an absent field."""

    def __missing__(self, name: str) -> Any:
        raise NoSuchFieldError(name)

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and not default:
            raise NoSuchFieldError(name)
        return super().pop(name, *default)

    def copy(self) -> PythonRecord:
        return PythonRecord(self)


def field_differences(chunk: Records, names: Sequence[str]) -> list[bytes]:
    """Return the difference of each record: the fields of `names` that it lacks, and its other fields."""
    same, entries = set(names), chunk.entries
    if entries is not None and same == set(entries):
        return [b""] * len(chunk)
    return [b"" if record.keys() == same else _difference(record, names) for record in chunk]


def _difference(record: Record, names: Sequence[str]) -> bytes:
    lacking = {_LACKS + _escaped(name): b"" for name in names if name not in record}
    return encode(lacking | {_HAS + _escaped(name): value for name, value in record.items() if name not in names})


def _escaped(name: str) -> str:
    """Return the name of a field as text that UTF-8 can encode. The bytes of a name need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("latin-1")


def unpack_record(names: Iterable[str], values: Sequence[bytes], difference: bytes) -> PythonRecord:
    """Return the record that has the given values of `names` and the given difference."""
    record = PythonRecord(zip(names, values, strict=True))
    for name in KEY_AND_SHARD:
        record[name] = record[name].decode("utf-8", "surrogateescape")
    for marked, value in decode(difference).items() if difference else ():
        mark, name = marked[:1], marked[1:].encode("latin-1").decode("utf-8", "surrogateescape")
        if mark == _LACKS:
            del record[name]
        else:
            record[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
    return record
