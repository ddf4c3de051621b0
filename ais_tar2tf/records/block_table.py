"""Tables of records whose fields are still in the blocks of bytes in which they arrived, or in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ais_tar2tf.base.allocation import aligned_bytes
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.records.cuts import BlockArray, BlockPart, Cuts

__all__ = ["BlockTable", "TablePart"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TablePart:
    """Consecutive records of a table.

    Attributes:
        blocks: For each column, the block or file that has its values. It stays in memory, or open.
        starts: Where each value begins; a row for each column, and a number in it for each record.
        sizes: The bytes of each value, in the same order.
    """

    blocks: tuple[BlockArray | FileBytes, ...]
    starts: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, parts: Sequence[BlockPart]) -> TablePart:
        """Combine one part of each column."""
        return cls(
            tuple(part.block for part in parts),
            np.stack([part.starts for part in parts]),
            np.stack([part.sizes for part in parts]),
        )

    @property
    def count(self) -> int:
        return self.starts.shape[1]

    def slice(self, begin: int, end: int) -> TablePart:
        return TablePart(self.blocks, self.starts[:, begin:end], self.sizes[:, begin:end])


class BlockTable(Mapping[str, Cuts]):
    """Columns of equal length, by name. It is immutable.

    Attributes:
        names: The names of the columns.
        texts: The names of the columns whose values are text.
        parts: The records.
        count: The number of records.
    """

    def __init__(self, names: tuple[str, ...], parts: list[TablePart], texts: frozenset[str]) -> None:
        self.names = names
        self.parts = parts
        self.texts = texts
        self.count: int = sum(part.count for part in parts)

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]]) -> BlockTable:
        """Return columns as a table: columns of bytes or of texts, whose values are copied to new blocks."""
        if isinstance(columns, BlockTable):
            return columns
        copies = {name: Cuts.of(column) for name, column in columns.items()}
        texts = frozenset(name for name, column in copies.items() if column.is_text)
        return cls(tuple(copies), [TablePart.of([column.parts[0] for column in copies.values()])], texts)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Cuts:
        at = self.places[name]
        parts = [BlockPart(part.blocks[at], part.starts[at], part.sizes[at]) for part in self.parts]
        return Cuts(parts, is_text=name in self.texts)

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of each column."""
        return {name: at for at, name in enumerate(self.names)}

    def slice(self, which: slice) -> BlockTable:
        """Return consecutive records."""
        begin, end, step = which.indices(self.count)
        assert step == 1
        if begin == 0 and end == self.count:
            return self
        parts: list[TablePart] = []
        for part in self.parts if begin < end else ():
            count = part.count
            if begin <= 0 and end >= count:
                parts.append(part)
            elif begin < count and end > 0:
                parts.append(part.slice(max(0, begin), end))
            begin, end = begin - count, end - count
        return BlockTable(self.names, parts, self.texts)

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> BlockTable:
        """Return this table with further columns, of bytes or of texts, whose values are copied to new blocks."""
        if not columns:
            return self
        other = BlockTable.of(columns)
        if not self.parts:
            return other
        (added,) = other.parts
        parts: list[TablePart] = []
        at = 0
        for part in self.parts:
            new = added.slice(at, at + part.count)
            at += part.count
            rows = np.concatenate([part.starts, new.starts]), np.concatenate([part.sizes, new.sizes])
            parts.append(TablePart(part.blocks + new.blocks, *rows))
        return BlockTable(self.names + other.names, parts, self.texts | other.texts)

    def with_copies(self, rows: Sequence[int], kept: set[int]) -> tuple[BlockTable, BlockArray]:
        """Copy the values of some columns that are not in the blocks with the ids `kept`.

        Args:
            rows: The numbers of the columns.
            kept: The ids of blocks and files whose values stay there.

        Returns:
            A table in which these columns refer to the copies, and the block with the copies.
        """
        moved = [(part, row) for part in self.parts for row in rows if id(part.blocks[row]) not in kept]
        block: BlockArray = aligned_bytes(sum(int(part.sizes[row].sum()) for part, row in moved))
        parts: list[TablePart] = []
        at = 0
        for part in self.parts:
            blocks, starts = list(part.blocks), part.starts.copy()
            for row in rows:
                if id(part.blocks[row]) not in kept:
                    column = Cuts([BlockPart(part.blocks[row], part.starts[row], part.sizes[row])])
                    (copy,) = column.copied_to(block, at).parts
                    blocks[row], starts[row] = block, copy.starts
                    at += column.bytes
            parts.append(TablePart(tuple(blocks), starts, part.sizes))
        return BlockTable(self.names, parts, self.texts), block

    def joined(self, other: BlockTable) -> BlockTable:
        """Return one table with the records of both. The other table has the same columns."""
        return BlockTable(self.names, [*self.parts, *other.parts], self.texts | other.texts)
