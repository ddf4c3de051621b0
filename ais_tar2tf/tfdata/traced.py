"""A record of symbolic tensors, as a user's function gets it while it is traced: it notes what is done with it.

A graph is the same for all records, so it cannot ask one of them whether it has a field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import NAMES

__all__ = ["NO_ATTRIBUTES", "Fields", "Notes", "TracedRecord"]

NO_ATTRIBUTES = "a record is a dict, and has its fields"
"""The beginning of the error of a function that reads a field as an attribute."""


@dataclass(frozen=True)
class Fields:
    """The fields that records may have, and what is known of which records have which."""

    names: tuple[str, ...]
    selected: bool = False  # so that records have no others, and all that are not optional
    optional: frozenset[str] = frozenset()  # selected so: b"" where a record has none
    differing: frozenset[str] = frozenset()  # not selected, and absent in some records of the sample
    advice: str = ""  # what to select, as the end of an error's sentence

    def answer(self, name: str) -> bool | None:
        """Return whether every record, or none, has a field; None where that is a matter of the record.

        Where nothing is selected, the sample answers. Every record that is read later is checked against the answer.
        """
        if name in self.optional or name in self.differing:
            return None
        return name in self.names or name in NAMES


@dataclass
class Notes:
    """What a function does with a record while it is traced."""

    touched: set[str] = field(default_factory=set[str])
    missing: list[str] = field(default_factory=list[str])  # read, and there is no such field
    asked: list[str] = field(default_factory=list[str])  # whether it is there, which only a record can answer
    absent: list[str] = field(default_factory=list[str])  # whether it is there, and no record of the sample has it


class TracedRecord(dict[str, Any]):
    """A record of symbolic tensors that notes which of its fields are touched.

    Each trace has a class of its own: `tf.nest`, and with it a function within `tf.function`, makes another record of
    the same class out of nothing but its tensors.
    """

    _fields: Fields
    _notes: Notes

    def __init__(self, tensors: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(tensors)
        self._later: dict[str, Callable[[], Any]] = {}

    @staticmethod
    def of_trace(fields: Fields, notes: Notes) -> type[TracedRecord]:
        """Return the class of one trace's records."""
        return type("TracedRecord", (TracedRecord,), {"_fields": fields, "_notes": notes})

    def lazily(self, values: dict[str, Callable[[], Any]]) -> TracedRecord:
        """Return a record in which each of these values replaces the field's when it is read."""
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
        text, there = str(name), super().__contains__(name)
        if self._fields.answer(text) is None:
            raise self._undecided(text)
        if text not in self._fields.names and not there:
            self._notes.absent.append(text)
        elif there:
            self._notes.touched.add(text)
        return there

    def among(self, names: Sequence[str], *, optional: bool = False) -> list[str]:
        """Return which of the fields the sample's records have: all of them do, or it is a matter of the record.

        With `optional`, fields that were selected as such are among them: b"" where a record has none.
        """
        for name in names:
            if name in self._fields.differing or (name in self._fields.optional and not optional):
                raise self._undecided(name)
        return [name for name in names if super(TracedRecord, self).__contains__(name)]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  # through __getitem__, which notes it

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
        """All fields are read; some records do not have them all."""
        for name in self._fields.differing:
            if super().__contains__(name):
                raise self._undecided(name)
        for name in tuple(super().keys()):
            self[name]

    def _undecided(self, name: str) -> SchemaError:
        self._notes.asked.append(name)
        return SchemaError(f"a graph cannot tell which records have {name!r}")
