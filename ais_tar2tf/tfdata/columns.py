"""The columns of a chunk: arrays of the values of one field, in the form that TensorFlow accepts.

This module must not open files or connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ais_tar2tf.base.allocation import aligned_bytes
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.records import KEY_AND_SHARD, BlockArray, BlockTable, Cuts, Record, Records

__all__ = ["BLOCKS", "FILE_NUMBERS", "as_bytes", "as_column", "column_of", "packed", "require_absent"]

BLOCKS = 5
"""The number of blocks of a chunk that is handed to the native operation."""

FILE_NUMBERS = 10
"""How many numbers describe a file that is handed to the native operation."""

_SMALL_BLOCK = 64 * KIB  # such a block, of names for example, is copied
_MOST_COPIED = 1 * MIB  # of all blocks but the largest; if they have more bytes, only the values in them are copied
_MOST_FILES = 32  # that a chunk keeps open
_EMPTY = np.empty(0, np.uint8)
_NO_FILES = np.empty((0, FILE_NUMBERS), np.int64)


def as_bytes(value: Any) -> Any:
    """Return the bytes from which a text was decoded; return any other value unchanged."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def as_column(values: Sequence[Any]) -> Any:
    """Return the values as an array of objects, which TensorFlow copies into a tensor of strings."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def column_of(chunk: Records, name: str, *, optional: bool) -> Sequence[Any]:
    """Return one field of all records of a chunk. If `optional`, the value is b"" in records without the field.

    Raises:
        SchemaError: The value of a record is not bytes.
    """
    if not chunk:
        return []
    values = chunk.column(name, b"" if optional and name not in KEY_AND_SHARD else None)
    if isinstance(values, Cuts):
        return values
    if name in KEY_AND_SHARD:
        is_ascii = "".join(values).isascii()  # TensorFlow accepts ASCII text without encoding
        return values if is_ascii else [as_bytes(text) for text in values]
    if set(map(type, values)) - {bytes}:
        raise _not_bytes(name, next(record for record in chunk if type(record.get(name, b"")) is not bytes))
    return values


def packed(table: BlockTable, names: Sequence[str]) -> list[Any]:
    """Return some columns of a chunk for the native operation.

    The result has `BLOCKS` blocks, the numbers of the files, and an array of the starts and the sizes of all values.
    The largest blocks are passed on as they are, and so are files. The last block has all other values.
    """
    rows = [table.places[name] for name in names]
    found = {id(part.blocks[row]): part.blocks[row] for part in table.parts for row in rows}
    files = [each for each in found.values() if isinstance(each, FileBytes)]
    by_size = sorted((each for each in found.values() if not isinstance(each, FileBytes)), key=len, reverse=True)
    large = [block for block in by_size[: BLOCKS - 1] if len(block) > _SMALL_BLOCK]
    small = by_size[len(large) :]
    if sum(map(len, small)) > _MOST_COPIED or len(files) > _MOST_FILES:  # copy only the values that are in them
        files = files if len(files) <= _MOST_FILES else []
        table, copies = table.with_copies(rows, set(map(id, [*large, *files])))
        small = [copies]
    last = small[0] if len(small) == 1 else np.concatenate([_EMPTY, *small])
    blocks = [*large, *[_EMPTY] * (BLOCKS - 1 - len(large)), last]
    in_order = [*large, *small, *files]
    places = dict(zip(map(id, in_order), accumulate(map(len, in_order), initial=0), strict=False))
    values = np.empty((2, len(rows), table.count), np.int64)
    starts, sizes = values
    at = 0
    for part in table.parts:
        end = at + part.count
        begins = np.array([places[id(part.blocks[row])] for row in rows])
        np.add(part.starts[rows], begins[:, np.newaxis], out=starts[:, at:end])
        sizes[:, at:end] = part.sizes[rows]
        at = end
    return [*blocks, _rows_of(files) if files else _NO_FILES, values]


def _rows_of(files: list[FileBytes]) -> Any:
    """Return the numbers of open files, in an array that keeps them open as long as TensorFlow uses it."""
    numbers = np.array([file.numbers for file in files], np.int64).reshape(len(files), FILE_NUMBERS)
    memory = aligned_bytes(numbers.nbytes)
    memory.data[:] = numbers.tobytes()
    return np.asarray(_KeepsOpen(memory, numbers.shape, files))


class _KeepsOpen:
    """The memory of an array, and the open files to which the array's numbers refer."""

    def __init__(self, memory: BlockArray, shape: tuple[int, ...], files: list[FileBytes]) -> None:
        self._memory = memory
        self._files = files
        address = memory.ctypes.data
        self.__array_interface__ = {"shape": shape, "typestr": "<i8", "data": (address, False), "version": 3}


def require_absent(chunk: Records, names: Iterable[str]) -> Records:
    """Return a chunk unchanged, after checking that no record has any of the fields `names`.

    A mapping is traced with a sample of the records. If no record of the sample has a field, the mapping's graph
    treats the field as absent from all records.

    Raises:
        SchemaError: A record has one of these fields.
    """
    for name in names:
        record = chunk.first_with(name)
        if record is not None:
            raise _not_absent(name, record)
    return chunk


def _not_bytes(name: str, record: Record) -> SchemaError:
    kind = "several strings, or none" if isinstance(record[name], list) else "numbers"
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: feature {name!r} holds {kind}, and a dataset's fields "
        "are bytes; select() only features that hold one string, or read the records by records(), or, if an export "
        "wrote them, by t2t.load(folder).dataset(split)"
    )


def _not_absent(name: str, record: Record) -> SchemaError:
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: it has a field {name!r}, and the first records had "
        "none. The mapping asks whether a record has this field, and its graph has the first records' answer. Say "
        "graph=False, output_types= and output_shapes= to ask each record, or select() the fields you need"
    )
