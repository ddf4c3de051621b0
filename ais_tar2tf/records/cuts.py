"""Columns of fields that are still in the blocks of bytes in which they arrived, or in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from ais_tar2tf.archive import Bytes
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.native import gather

__all__ = ["BlockArray", "BlockPart", "Cuts", "Piece", "slices"]

BlockArray = npt.NDArray[np.uint8]

Piece = Any
"""Bytes that files and checksums take without a copy: bytes, or an array. google_crc32c refuses a memoryview."""

_LARGE_VALUE = 16_384  # average bytes of a value, from which a copy costs more than a view

Numbers = npt.NDArray[np.int64]


class BlockPart(NamedTuple):
    """Consecutive values of a column that are in one block or file."""

    block: BlockArray | FileBytes  # stays in memory, or open, as long as this object
    starts: Numbers
    sizes: Numbers


class Cuts(Sequence[Any]):
    """The values of one field of consecutive records, each a range of a block or file. It is immutable.

    Reading a value copies it: to bytes, or to text if `is_text`.

    Attributes:
        parts: The values, by blocks.
        is_text: Whether the values are names, which are text in a record.
    """

    __slots__ = ("_count", "is_text", "parts")

    def __init__(self, parts: list[BlockPart], *, is_text: bool = False) -> None:
        self.parts = parts
        self.is_text = is_text
        self._count = len(parts[0].starts) if len(parts) == 1 else sum(len(part.starts) for part in parts)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Cuts:
        """Return copies of values in a new block: of bytes, or of texts."""
        is_text = bool(values) and isinstance(values[0], str)
        raw = [value.encode("utf-8", "surrogateescape") for value in values] if is_text else values
        sizes = np.fromiter(map(len, raw), np.int64, len(raw))
        starts = np.cumsum(sizes) - sizes
        return cls([BlockPart(np.frombuffer(b"".join(raw), np.uint8), starts, sizes)], is_text=is_text)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, which: int) -> Any: ...
    @overload
    def __getitem__(self, which: slice) -> Cuts: ...
    def __getitem__(self, which: int | slice) -> Any:
        if isinstance(which, int):
            which = range(self._count)[which]
            return next(iter(self[which : which + 1]))
        begin, end, step = which.indices(self._count)
        assert step == 1
        parts: list[BlockPart] = []
        for part in self.parts:
            count = len(part.starts)
            if begin < count and end > 0:
                chosen = slice(max(0, begin), end)
                parts.append(BlockPart(part.block, part.starts[chosen], part.sizes[chosen]))
            begin, end = begin - count, end - count
        return Cuts(parts, is_text=self.is_text)

    def __iter__(self) -> Iterator[Any]:
        for block, starts, sizes in self.parts:
            for value in slices(_view(block), starts.tolist(), sizes.tolist()):
                yield value.decode("utf-8", "surrogateescape") if self.is_text else value

    def pieces(self) -> list[Piece]:
        """Return the bytes of each value: copies of small values, and views of large values in a block."""
        found: list[Piece] = []
        for block, starts, sizes in self.parts:
            places = starts.tolist(), sizes.tolist()
            if isinstance(block, FileBytes) or int(sizes.sum()) < _LARGE_VALUE * len(sizes):
                found += slices(_view(block), *places)
            else:
                found += [block[start : start + size] for start, size in zip(*places, strict=True)]
        return found

    @property
    def bytes(self) -> int:
        """The bytes of all values."""
        return sum(int(part.sizes.sum()) for part in self.parts)

    def copied_to(self, block: BlockArray, begin: int) -> Cuts:
        """Copy all values to a block, from `begin` on, and return the column of the copies."""
        found: list[BlockPart] = []
        for source, starts, sizes in self.parts:
            ends = begin + np.cumsum(sizes)
            end = int(ends[-1])
            if isinstance(source, FileBytes):
                block[begin:end].data[:] = b"".join(source.read(starts.tolist(), sizes.tolist()))
            else:
                gather(source, starts, sizes, block[begin:end])
            found.append(BlockPart(block, ends - sizes, sizes))
            begin = end
        return Cuts(found, is_text=self.is_text)


def slices(data: Bytes | FileBytes, starts: list[int], sizes: list[int]) -> list[bytes]:
    """Return copies of some ranges."""
    if isinstance(data, FileBytes):
        return data.read(starts, sizes)
    if isinstance(data, bytes):
        return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return [bytes(data[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def _view(block: BlockArray | FileBytes) -> Bytes | FileBytes:
    return block if isinstance(block, FileBytes) else block.data
