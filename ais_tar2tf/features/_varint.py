"""Varints: seven bits a byte, the lowest first, the highest bit set on all bytes but the last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import MalformedExample

__all__ = ["as_int64s", "integers", "packed", "read", "varint"]

_LONGEST = 10  # bytes: 64 bits by seven
_FEW = 12  # below this, a loop costs less than numpy's calls
_U64 = 0xFFFFFFFFFFFFFFFF


def varint(number: int) -> bytes:
    """One number, 0 or more.

    >>> varint(300).hex()
    'ac02'
    """
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    number = shift = 0
    for place in range(at, min(end, at + _LONGEST)):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _U64, place + 1
        shift += 7
    raise MalformedExample("a number that does not end", offset=at)


def packed(numbers: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    """int64s, one behind the other."""
    if len(numbers) < _FEW:
        return b"".join([varint(int(number) & _U64) for number in numbers])
    wide = np.ascontiguousarray(numbers, dtype=np.int64).view(np.uint64)
    longest = len(varint(int(wide.max())))
    if longest == 1:
        return wide.astype(np.uint8).tobytes()
    if longest == 2:
        rows = np.empty((len(wide), 2), np.uint8)
        rows[:, 1] = wide >> np.uint64(7)
        two = rows[:, 1] != 0
        rows[:, 0] = wide & np.uint64(0x7F)
        rows[:, 0] |= two.view(np.uint8) << np.uint8(7)
        used = np.ones((len(wide), 2), bool)
        used[:, 1] = two
        return rows[used].tobytes()
    shifts = np.arange(longest, dtype=np.uint64) * np.uint64(7)
    groups = wide[:, None] >> shifts
    used = groups != 0
    used[:, 0] = True
    rows = (groups & np.uint64(0x7F)).astype(np.uint8)
    rows[:, :-1] |= used[:, 1:].view(np.uint8) << np.uint8(7)
    return rows[used].tobytes()


def integers(data: bytes, offset: int) -> np.ndarray[Any, Any]:
    """The int64s of a packed list that stands at `offset` of its record."""
    if data.isascii():
        return np.frombuffer(data, np.uint8).astype(np.int64)
    if len(data) < _FEW:
        return _few_integers(data, offset)
    row = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(row < 0x80)
    if row[-1] >= 0x80:
        raise MalformedExample("a number that does not end", offset=offset + int(ends[-1] + 1 if len(ends) else 0))
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _LONGEST:
        raise MalformedExample("a number that does not end", offset=offset + int(starts[lengths.argmax()]))
    found = (row[starts] & 0x7F).astype(np.uint64)
    if longest == 2:
        return (found + ((row[ends] * (lengths > 1)).astype(np.uint64) << np.uint64(7))).view(np.int64)
    for place in range(1, longest):
        there = np.flatnonzero(lengths > place)
        found[there] |= (row[starts[there] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return found.view(np.int64)


def _few_integers(data: bytes, offset: int) -> np.ndarray[Any, Any]:
    numbers: list[int] = []
    number = shift = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number & _U64)
            number = shift = 0
        elif shift == 7 * _LONGEST or place == len(data) - 1:
            raise MalformedExample("a number that does not end", offset=offset + place)
    return np.array(numbers, np.uint64).view(np.int64)


def as_int64s(numbers: Iterable[int]) -> np.ndarray[Any, Any]:
    """Numbers that were not packed, as they come from single varints."""
    return np.fromiter(numbers, np.uint64).view(np.int64)
