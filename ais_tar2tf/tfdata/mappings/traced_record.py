"""`TracedRecord`: the record that a mapping gets while it is traced. Its fields are symbolic tensors.

A graph is the same for all records, so it cannot depend on whether a record has a field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import KEY_AND_SHARD

__all__ = ["NO_ATTRIBUTES", "KnownFields", "TraceNotes", "TracedRecord"]

NO_ATTRIBUTES = "a record is a dict, and has its fields"
"""The beginning of the error for a mapping that reads a field as an attribute."""


@dataclass(frozen=True)
class KnownFields:
    """The fields that records may have.

    Attributes:
        names: All these fields.
        selected: Whether the user selected the fields. If so, records have all fields that are not optional, and no
            other fields.
        optional: Selected fields that a record may lack. A lacking field has the value b"".
        differing: If the user selected no fields: the fields that some records of the sample lack.
        advice: The end of an error text, which says what to select.
    """

    names: tuple[str, ...]
    selected: bool = False
    optional: frozenset[str] = frozenset()
    differing: frozenset[str] = frozenset()
    advice: str = ""

    def in_all(self, name: str) -> bool | None:
        """Return True if every record has a field, False if no record has it, None if only some have it.

        Without a selection, the sample determines the result. Every record that is read later is checked against it.
        """
        if name in self.optional or name in self.differing:
            return None
        return name in self.names or name in KEY_AND_SHARD


@dataclass
class TraceNotes:
    """A log of what a mapping does with the record while it is traced.

    Attributes:
        touched: The fields that the mapping uses.
        missing: The fields that the mapping reads, although no record has them.
        undecided: The fields whose presence the mapping checks, and that only some records have.
        absent: The fields whose presence the mapping checks, and that no record of the sample has.
    """

    touched: set[str] = field(default_factory=set[str])
    missing: list[str] = field(default_factory=list[str])
    undecided: list[str] = field(default_factory=list[str])
    absent: list[str] = field(default_factory=list[str])


class TracedRecord(dict[str, Any]):
    """A record of symbolic tensors that logs which of its fields are read.

    `tf.nest` copies a record by calling the class of the record with nothing but tensors; a `tf.function` that the
    mapping calls does the same. So each trace has its own class, whose attributes hold the fields and the log.
    """

    _fields: KnownFields
    _notes: TraceNotes

    def __init__(self, tensors: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(tensors)
        self._later: dict[str, Callable[[], Any]] = {}

    @staticmethod
    def class_for(fields: KnownFields, notes: TraceNotes) -> type[TracedRecord]:
        """Create the class of the records of one trace."""
        return type("TracedRecord", (TracedRecord,), {"_fields": fields, "_notes": notes})

    def lazily(self, values: dict[str, Callable[[], Any]]) -> TracedRecord:
        """Return a copy with functions that compute values of fields. A function is called when its field is read."""
        tensors = {name: super(TracedRecord, self).__getitem__(name) for name in dict.keys(self)}
        other = type(self)(tensors)
        other._later = {name: value for name, value in values.items() if name in tensors}
        return other

    def __getitem__(self, name: str) -> Any:
        self._notes.touched.add(name)
        if name in self._later:
            super().__setitem__(name, self._later.pop(name)())
        return super().__getitem__(name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{NO_ATTRIBUTES}, as record[{name!r}]", name=name, obj=self)

    def __setitem__(self, name: str, value: Any) -> None:
        self._later.pop(name, None)
        super().__setitem__(name, value)

    def __missing__(self, name: str) -> Any:
        self._notes.missing.append(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        text, is_present = str(name), super().__contains__(name)
        if self._fields.in_all(text) is None:
            raise self._undecided(text)
        if text not in self._fields.names and not is_present:
            self._notes.absent.append(text)
        elif is_present:
            self._notes.touched.add(text)
        return is_present

    def among(self, names: Sequence[str], *, optional: bool = False) -> list[str]:
        """Return the names of fields that all records have.

        Args:
            names: The names to look up.
            optional: Whether to include fields that are selected as optional.

        Raises:
            SchemaError: One of `names` is a field that only some records have.
        """
        for name in names:
            if name in self._fields.differing or (name in self._fields.optional and not optional):
                raise self._undecided(name)
        return [name for name in names if super(TracedRecord, self).__contains__(name)]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  # __getitem__ logs the field

    def pop(self, name: str, *default: Any) -> Any:
        if default and name not in self:
            return default[0]
        value = self[name]
        super().__delitem__(name)
        return value

    def keys(self) -> Any:
        self._read_all()
        return super().keys()

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()

    def items(self) -> Any:
        self._read_all()
        return super().items()

    def values(self) -> Any:
        self._read_all()
        return super().values()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def _read_all(self) -> None:
        """Log that all fields are read. Raise SchemaError for a field in `differing`."""
        for name in self._fields.differing:
            if super().__contains__(name):
                raise self._undecided(name)
        for name in tuple(super().keys()):
            self[name]

    def _undecided(self, name: str) -> SchemaError:
        self._notes.undecided.append(name)
        return SchemaError(f"a graph cannot tell which records have {name!r}")
