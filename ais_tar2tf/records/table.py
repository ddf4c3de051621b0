"""Consecutive records, by columns where they are alike. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

__all__ = ["NAMES", "Record", "RecordBatch", "Records", "said_fields"]

Record = dict[str, Any]
"""`__key__` and `__shard__` as text, every field as bytes."""

NAMES = ("__key__", "__shard__")
"""The entries of a record that are no fields of it."""


def said_fields(names: Iterable[str]) -> str:
    """The fields among a record's names, as errors say which there are."""
    return ", ".join(name for name in names if name not in NAMES) or "none"


class Records(Sequence[Record]):
    """Consecutive records: by columns as long as they have the same entries in the same order, else one by one.

    A record of columns is made when somebody asks for it, each time anew.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._columns: dict[str, list[Any]] = {}
        self._rows: list[Record] = list(records)  # unless there are columns

    @classmethod
    def by_columns(cls, columns: dict[str, list[Any]]) -> Records:
        """Lists of one length for each entry, which are now these records' own."""
        made = cls()
        made._columns = columns
        return made

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), self._rows))

    def __iter__(self) -> Iterator[Record]:
        return iter(self._made())

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> Records: ...
    def __getitem__(self, which: int | slice) -> Record | Records:
        if isinstance(which, slice):
            return self._with(lambda column: column[which])
        return {name: column[which] for name, column in self._columns.items()} or self._rows[which]

    @property
    def entries(self) -> list[str] | None:
        """The entries that all of these records have, when they are held by columns; else None."""
        return list(self._columns) if self._columns else None

    def column(self, name: str, absent: bytes | None = None) -> list[Any]:
        """One entry of all records; `absent` where there is none, which is else a KeyError."""
        if self._columns:
            if absent is None or name in self._columns:
                return self._columns[name]
            return [absent] * len(self)
        if absent is None:
            return [record[name] for record in self._rows]
        return [record.get(name, absent) for record in self._rows]

    def first_with(self, name: str) -> Record | None:
        """Return the first record that has an entry; None when none has it."""
        if self._columns:
            return self[0] if name in self._columns and len(self) else None
        return next((record for record in self._rows if name in record), None)

    def append(self, record: Record) -> None:
        if self._columns or not self._rows:
            self.extend(Records.by_columns({name: [value] for name, value in record.items()}))
        else:
            self._rows.append(record)

    def extend(self, others: Records) -> None:
        if not self._columns and not self._rows:
            self._columns = {name: [*column] for name, column in others._columns.items()}
            self._rows = [*others._rows]
        elif self._columns and list(self._columns) == list(others._columns):
            for name, column in others._columns.items():
                self._columns[name] += column
        elif others:
            self._rows = [*self._made(), *others]
            self._columns = {}

    def permuted(self, order: Sequence[int]) -> Records:
        return self._with(lambda column: [column[at] for at in order])

    def take_out(self, begin: int, end: int) -> Records:
        """Those from `begin` to `end`, which are held here no longer; the others keep their places."""
        taken = self[begin:end]
        for column in self._columns.values() or (self._rows,):
            column[begin:end] = [None] * len(taken)  # type: ignore[list-item]  # nobody asks for them again
        return taken

    def change(self, change: Callable[[Any], Any]) -> None:
        """Put into the place of every value what `change` makes of it."""
        for name, column in self._columns.items():
            self._columns[name] = [change(value) for value in column]
        for record in self._rows:
            record.update({name: change(value) for name, value in record.items()})

    def _with(self, part: Callable[[list[Any]], list[Any]]) -> Records:
        made = Records()
        if self._columns:
            columns = {name: part(column) for name, column in self._columns.items()}
            made._columns = columns if next(iter(columns.values())) else {}
        else:
            made._rows = part(self._rows)
        return made

    def _made(self) -> list[Record]:
        """The records; dicts of the same names are quicker made by columns than one by one."""
        if not self._columns:
            return self._rows
        (first, *others) = self._columns.items()
        name, values = first
        made: list[Record] = [{name: value} for value in values]
        for name, values in others:
            for record, value in zip(made, values, strict=True):
                record[name] = value
        return made


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one shard, where each begins in its archive, and the bytes of its fields.

    An extent is what a record takes of the archive, up to the next one: whatever fields are selected.
    """

    records: Records = field(default_factory=Records)
    offsets: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])
    extents: list[int] = field(default_factory=list[int])
    numbers: list[int] = field(default_factory=list[int])  # in the shard, where the archive counts its records
    keys: list[str] = field(default_factory=list[str])  # where the records are not kept

    def add_places(self, other: RecordBatch, *, keys: bool) -> None:
        """Where the records of `other` are, and on request their keys, without the records."""
        if keys:
            self.keys += other.records.column("__key__")
        self.offsets += other.offsets
        self.sizes += other.sizes
        self.extents += other.extents

    def until(self, stop: int | None) -> RecordBatch:
        """Those that begin before the offset `stop`."""
        end = len(self.offsets) if stop is None else bisect_left(self.offsets, stop)
        places = (self.offsets[:end], self.sizes[:end], self.extents[:end], self.numbers[:end])
        return RecordBatch(self.records[:end], *places)
