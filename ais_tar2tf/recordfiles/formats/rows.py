"""Encode many records as tf.train.Examples at once, column by column: the fast path for fields that stay bytes.

A *row* holds the bytes of one record as a tuple of pieces. The pieces are joined to one, unless records are large on
average (`_LARGE`): then their fields are not copied, and may be views of the blocks in which they arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import Any

import google_crc32c
import numpy as np

from ais_tar2tf.archive import MASK_DELTA
from ais_tar2tf.recordfiles.formats.framing import FRAME_BYTES, masked_header
from ais_tar2tf.records import Cuts, Piece, Record, Records
from ais_tar2tf.values.features import bytes_head, example_head

__all__ = ["Row", "example_rows", "framed_rows"]

Row = tuple[Piece, ...]

_LARGE = 16_384  # bytes of a record, above which copying it costs more than writing its pieces one by one
_MAX_CACHED = 65_536  # entries of one cache
_MAX_NAME = 256  # characters of a field's name; for longer names, prefixes are not cached
_MAX_FIELDS = 1_024  # fields whose prefixes are cached
_MAX_PREFIXES = 262_144  # cached prefixes of all fields together: some 40 MB


class _LengthCache(dict[int, bytes]):
    """A cache of byte strings, each of which depends on a length alone."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, length: int) -> bytes:
        if len(self) >= _MAX_CACHED:
            self.clear()
        made = self[length] = self._make(length)
        return made


class _PrefixCache(_LengthCache):
    """A cache of the bytes that precede a value of one field, by the length of the value."""

    def __missing__(self, length: int) -> bytes:
        if sum(map(len, _prefixes.values())) >= _MAX_PREFIXES:
            for each in _prefixes.values():
                each.clear()
        return super().__missing__(length)


_prefixes: dict[str, _LengthCache] = {}
_heads = _LengthCache(example_head)
_headers = _LengthCache(masked_header)


def _prefixes_of(name: str) -> _LengthCache:
    found = _prefixes.get(name)
    if found is None:
        found = _PrefixCache(partial(bytes_head, name.encode("utf-8", "surrogateescape")))
        if len(_prefixes) >= _MAX_FIELDS:
            _prefixes.clear()
        if len(name) <= _MAX_NAME:
            _prefixes[name] = found
    return found


def example_rows(records: Sequence[Record]) -> tuple[list[Row], list[int]]:
    """Return the serialized tf.train.Examples of records as rows, and their sizes.

    An Example holds the key and the fields of a record, but not the name of its shard.
    """
    rows: list[Row] = []
    sizes: list[int] = []
    if isinstance(records, Records) and (entries := records.entries) is not None:
        _add_same_fields({name: records.column(name) for name in entries}, rows, sizes)
        return rows, sizes
    for names, alike in groupby(records, key=tuple):
        same = list(alike)
        _add_same_fields({name: [record[name] for record in same] for name in names}, rows, sizes)
    return rows, sizes


def _add_same_fields(columns: Mapping[str, Sequence[Any]], rows: list[Row], sizes: list[int]) -> None:
    """Append the Examples of records that have the same fields in the same order."""
    parts: list[Sequence[Piece]] = []
    totals = [0] * len(next(iter(columns.values())))
    for name, column in columns.items():
        if name == "__shard__":
            continue
        values = _pieces(name, column)
        lengths = list(map(len, values))
        prefixes = list(map(_prefixes_of(name).__getitem__, lengths))
        totals = list(map(add, map(add, totals, lengths), map(len, prefixes)))
        parts += [prefixes, values]
    heads = list(map(_heads.__getitem__, totals))
    added: list[Row] = list(zip(heads, *parts, strict=True))
    if sum(totals) < _LARGE * len(totals):
        added = [(payload,) for payload in map(b"".join, added)]
    rows += added
    sizes += map(add, totals, map(len, heads))


def _pieces(name: str, column: Sequence[Any]) -> Sequence[Piece]:
    """Return the bytes of an entry of all records."""
    if isinstance(column, Cuts):
        return column.pieces()
    return [text.encode("utf-8", "surrogateescape") for text in column] if name == "__key__" else column


def framed_rows(rows: list[Row], sizes: list[int]) -> tuple[list[Row], list[int]]:
    """Return rows with TFRecord frames around them, and their sizes including the frames."""
    in_one_piece = all(len(row) == 1 for row in rows)
    crcs = map(_crc_of, [row[0] for row in rows]) if in_one_piece else (reduce(_crc_extended, row, 0) for row in rows)
    checksums = np.fromiter(crcs, np.uint32, len(rows))
    masked = ((checksums >> 15) | (checksums << 17)) + np.uint32(MASK_DELTA)
    trailers = struct.iter_unpack("4s", masked.astype("<u4").tobytes())
    framed = [(_headers[size], *row, *trailer) for size, row, trailer in zip(sizes, rows, trailers, strict=True)]
    return framed, [size + FRAME_BYTES for size in sizes]


_crc_of: Any = google_crc32c.value
_crc_extended: Any = google_crc32c.extend
