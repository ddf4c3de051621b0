"""Encodes and decodes varints, the encoding of integers in protocol buffers.

Each byte of a varint holds seven bits of the number; the first byte holds the lowest seven bits. The highest bit of a
byte is set if another byte of the same number follows. This module must not know messages or features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import MalformedExample

__all__ = ["integers", "packed", "read", "varint"]

_LONGEST = 10  # the most bytes of a varint: 64 bits, with seven bits in a byte
_FEW = 12  # with fewer numbers to encode or bytes to decode, a loop is faster than NumPy
_U64 = 0xFFFFFFFFFFFFFFFF


def varint(number: int) -> bytes:
    """Return a number as a varint. The number must not be negative.

    >>> varint(300).hex()
    'ac02'
    """
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number whose varint begins at the offset `at`, and the offset after the varint."""
    number = shift = 0
    for position in range(at, min(end, at + _LONGEST)):
        byte = data[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _U64, position + 1
        shift += 7
    raise MalformedExample("a number that does not end", offset=at)


def packed(numbers: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    """Return int64 numbers as consecutive varints. A negative number is encoded as the number plus 2**64."""
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
    """Return the int64 numbers of consecutive varints. `offset` is the offset of `data`, for errors."""
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
    numbers = (row[starts] & 0x7F).astype(np.uint64)
    if longest == 2:
        return (numbers + ((row[ends] * (lengths > 1)).astype(np.uint64) << np.uint64(7))).view(np.int64)
    for position in range(1, longest):
        long_enough = np.flatnonzero(lengths > position)
        bits = (row[starts[long_enough] + position] & 0x7F).astype(np.uint64)
        numbers[long_enough] |= bits << np.uint64(7 * position)
    return numbers.view(np.int64)


def _few_integers(data: bytes, offset: int) -> np.ndarray[Any, Any]:
    numbers: list[int] = []
    begin = number = shift = 0
    for position, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number & _U64)
            begin, number, shift = position + 1, 0, 0
        elif shift == 7 * _LONGEST or position == len(data) - 1:
            raise MalformedExample("a number that does not end", offset=offset + begin)
    return np.array(numbers, np.uint64).view(np.int64)
