"""Tables of consecutive records, held by columns while all records have the same entries. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from ais_tar2tf.records.block_table import BlockTable

__all__ = ["KEY_AND_SHARD", "Record", "RecordBatch", "Records", "listed_fields"]

Record = dict[str, Any]
"""A record: `__key__` and `__shard__` as text, and every field as bytes or, once decoded, as a value."""

KEY_AND_SHARD = ("__key__", "__shard__")
"""The entries of a record that are not fields."""


def listed_fields(names: Iterable[str]) -> str:
    """Return the fields among the names of a record's entries, as errors list them."""
    return ", ".join(name for name in names if name not in KEY_AND_SHARD) or "none"


class Records(Sequence[Record]):
    """Consecutive records: in columns while all have the same entries in the same order, otherwise in rows.

    A record of a table with columns is a new dict each time it is read. The columns are lists, or a `BlockTable`,
    whose values are still in the blocks in which they arrived.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._columns: dict[str, list[Any]] | BlockTable = {}
        self._rows: list[Record] = list(records)  # empty if there are columns

    @classmethod
    def from_columns(cls, columns: dict[str, list[Any]] | BlockTable) -> Records:
        """Return a table of columns of equal length. The caller must not use a dict of lists afterwards."""
        table = cls()
        table._columns = columns
        return table

    def __len__(self) -> int:
        if isinstance(self._columns, BlockTable):
            return self._columns.count
        return len(next(iter(self._columns.values()), self._rows))

    def __iter__(self) -> Iterator[Record]:
        return iter(self._to_rows())

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> Records: ...
    def __getitem__(self, which: int | slice) -> Record | Records:
        if isinstance(which, slice):
            if isinstance(self._columns, BlockTable):
                table = self._columns.slice(which)
                return Records.from_columns(table) if table.count else Records()
            return self._with(lambda column: column[which])
        return {name: column[which] for name, column in self._columns.items()} or self._rows[which]

    @property
    def entries(self) -> list[str] | None:
        """The names of the entries that all records have; None if the records are in rows."""
        return list(self._columns) if self._columns else None

    @property
    def block_table(self) -> BlockTable | None:
        """The columns if their values are still in blocks or files; otherwise None."""
        return self._columns if isinstance(self._columns, BlockTable) else None

    def column(self, name: str, absent: bytes | None = None) -> Sequence[Any]:
        """Return one entry of all records.

        Args:
            name: The name of the entry.
            absent: The value for a record that lacks the entry; None raises KeyError for it.
        """
        if self._columns:
            if absent is None or name in self._columns:
                return self._columns[name]
            return [absent] * len(self)
        if absent is None:
            return [record[name] for record in self._rows]
        return [record.get(name, absent) for record in self._rows]

    def first_with(self, name: str) -> Record | None:
        """Return the first record that has an entry; None if no record has it."""
        if self._columns:
            return self[0] if name in self._columns and len(self) else None
        return next((record for record in self._rows if name in record), None)

    def append(self, record: Record) -> None:
        """Add one record."""
        if self._columns or not self._rows:
            self.extend(Records.from_columns({name: [value] for name, value in record.items()}))
        else:
            self._rows.append(record)

    def extend(self, others: Records) -> None:
        """Add the records of another table, which stays as it is."""
        mine, theirs = self._columns, others._columns
        if not mine and not self._rows:
            is_table = isinstance(theirs, BlockTable)
            self._columns = theirs if is_table else {name: [*values] for name, values in theirs.items()}
            self._rows = [*others._rows]
        elif mine and list(mine) == list(theirs):
            if isinstance(mine, BlockTable) or isinstance(theirs, BlockTable):
                self._columns = BlockTable.of(mine).joined(BlockTable.of(theirs))
                return
            for name, column in theirs.items():
                mine[name] += column
        elif others:
            self._rows = [*self._to_rows(), *others]
            self._columns = {}

    def permuted(self, order: Sequence[int]) -> Records:
        """Return the records with these numbers, in this order."""
        return self._with(lambda column: [column[at] for at in order])

    def take_out(self, begin: int, end: int) -> Records:
        """Return records `begin` to `end` and drop them here; the other records keep their numbers."""
        taken = self[begin:end]
        for column in self._columns.values() or (self._rows,):
            if isinstance(column, list):
                column[begin:end] = [None] * len(taken)  # type: ignore[list-item]  # frees the memory
        return taken

    def convert(self, function: Callable[[Any], Any]) -> None:
        """Replace every value by the result of a function."""
        self._columns = {name: [function(value) for value in column] for name, column in self._columns.items()}
        for record in self._rows:
            record.update({name: function(value) for name, value in record.items()})

    def _with(self, part: Callable[[Sequence[Any]], Any]) -> Records:
        """Return a table of a part of each column, or of the rows."""
        table = Records()
        if self._columns:
            columns: dict[str, list[Any]] = {name: part(column) for name, column in self._columns.items()}
            table._columns = columns if len(next(iter(columns.values()))) else {}
        else:
            table._rows = [*part(self._rows)]
        return table

    def _to_rows(self) -> list[Record]:
        """Return the records as dicts, made entry by entry, which is faster than record by record."""
        if not self._columns:
            return self._rows
        (name, values), *others = self._columns.items()
        rows: list[Record] = [{name: value} for value in values]
        for name, values in others:
            for row, value in zip(rows, values, strict=True):
                row[name] = value
        return rows


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one shard, and where they are in its archive.

    Attributes:
        records: The records; empty in a batch that only says where records are.
        offsets: Where each record begins in the archive, after decompression.
        sizes: The bytes of each record's selected fields.
        extents: The bytes of the archive from each record to the next, whatever fields are selected.
        numbers: The number of each record in its shard; empty if members have names.
        keys: The keys of records that are not kept.
    """

    records: Records = field(default_factory=Records)
    offsets: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])
    extents: list[int] = field(default_factory=list[int])
    numbers: list[int] = field(default_factory=list[int])
    keys: list[str] = field(default_factory=list[str])

    def add_places(self, other: RecordBatch, *, keys: bool) -> None:
        """Add where the records of `other` are, and on request their keys, but not the records."""
        if keys:
            self.keys += other.records.column("__key__")
        self.offsets += other.offsets
        self.sizes += other.sizes
        self.extents += other.extents

    def extend(self, other: RecordBatch) -> None:
        """Add the records of a batch that follows in the same shard."""
        self.records.extend(other.records)
        self.add_places(other, keys=False)
        self.numbers += other.numbers

    def before(self, stop: int) -> RecordBatch:
        """Return the records that begin before the offset `stop`."""
        return self._part(slice(bisect_left(self.offsets, stop)))

    def pop_last(self) -> RecordBatch:
        """Remove the last record, if there is one, and return it as a batch."""
        last = self._part(slice(-1, None))
        self.records = self.records[:-1]
        for column in (self.offsets, self.sizes, self.extents, self.numbers):
            del column[-1:]
        return last

    def _part(self, which: slice) -> RecordBatch:
        places = (self.offsets[which], self.sizes[which], self.extents[which], self.numbers[which])
        return RecordBatch(self.records[which], *places)
