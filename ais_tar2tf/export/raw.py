"""Records whose fields are written as they are → tf.train.Examples, many at once and by columns: the fast path.

A record's bytes are a *row* of pieces. Small ones are joined, large bodies are never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import add
from typing import Any

import google_crc32c
import numpy as np

from ais_tar2tf.archive import MASK_DELTA
from ais_tar2tf.export.framing import FRAME_BYTES, masked_header
from ais_tar2tf.features import bytes_head, example_head
from ais_tar2tf.records import Record

__all__ = ["Row", "example_rows", "framed_rows"]

Row = tuple[bytes, ...]

_LARGE = 16_384  # bytes of a record; above it a copy costs more than a few calls
_REMEMBERED = 65_536  # prefixes and headers of one kind that are kept
_LONGEST_NAME = 256  # characters of a field whose prefixes are kept
_MOST_NAMES = 1_024  # fields whose prefixes are kept
_MOST_PREFIXES = 262_144  # of all fields together: some 40 MB


class _Cache(dict[int, bytes]):
    """Bytes by a length, made once for each."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, length: int) -> bytes:
        if len(self) >= _REMEMBERED:
            self.clear()
        made = self[length] = self._make(length)
        return made


class _Prefixes(_Cache):
    """The prefixes of one field."""

    def __missing__(self, length: int) -> bytes:
        if sum(map(len, _prefixes.values())) >= _MOST_PREFIXES:
            for each in _prefixes.values():
                each.clear()
        return super().__missing__(length)


_prefixes: dict[str, _Cache] = {}
_heads = _Cache(example_head)
_headers = _Cache(masked_header)


def _prefixes_of(name: str) -> _Cache:
    found = _prefixes.get(name)
    if found is None:
        found = _Prefixes(partial(bytes_head, name.encode("utf-8", "surrogateescape")))
        if len(_prefixes) >= _MOST_NAMES:
            _prefixes.clear()
        if len(name) <= _LONGEST_NAME:
            _prefixes[name] = found
    return found


def example_rows(records: Sequence[Record]) -> tuple[list[Row], list[int]]:
    """The serialized tf.train.Example of each record as a row, and its size: key and fields, but not the shard."""
    rows: list[Row] = []
    sizes: list[int] = []
    for names, alike in groupby(records, key=tuple):
        _add_alike(names, list(alike), rows, sizes)
    return rows, sizes


def _add_alike(names: Sequence[str], records: list[Record], rows: list[Row], sizes: list[int]) -> None:
    columns: list[list[bytes]] = []
    totals = [0] * len(records)
    for name in names:
        if name == "__shard__":
            continue
        values = [record[name] for record in records]
        if name == "__key__":
            values = [value.encode("utf-8", "surrogateescape") for value in values]
        lengths = list(map(len, values))
        prefixes = list(map(_prefixes_of(name).__getitem__, lengths))
        totals = list(map(add, map(add, totals, lengths), map(len, prefixes)))
        columns += [prefixes, values]
    heads = list(map(_heads.__getitem__, totals))
    made: list[Row] = list(zip(heads, *columns, strict=True))
    if sum(totals) < _LARGE * len(records):
        made = [(payload,) for payload in map(b"".join, made)]
    rows += made
    sizes += map(add, totals, map(len, heads))


def framed_rows(rows: list[Row], sizes: list[int]) -> tuple[list[Row], list[int]]:
    """Rows as records of a TFRecord file, and their sizes in it."""
    whole = all(len(row) == 1 for row in rows)
    found = map(_value, [row[0] for row in rows]) if whole else map(_checksum, rows)
    checksums = np.fromiter(found, np.uint32, len(rows))
    masked = ((checksums >> 15) | (checksums << 17)) + np.uint32(MASK_DELTA)
    trailers = struct.iter_unpack("4s", masked.astype("<u4").tobytes())
    framed = [(_headers[size], *row, *trailer) for size, row, trailer in zip(sizes, rows, trailers, strict=True)]
    return framed, [size + FRAME_BYTES for size in sizes]


_value: Any = google_crc32c.value
_extend: Any = google_crc32c.extend


def _checksum(row: Row) -> int:
    checksum: int = _value(row[0])
    for piece in row[1:]:
        checksum = _extend(checksum, piece)
    return checksum
