"""Parses and checks all plain tar headers of a block at once, by numpy. No I/O.

The block is divided into rows of 512 bytes. Every row with `usta` at byte 257 is a candidate: a header, or data that
looks like a header. The table parses every candidate as if it were a header. Only the chain from one header to the
next shows which candidates are headers: `run()` follows the chain.

A header is *plain* if it is a usual header of the ustar or GNU format: with octal numbers, a known type, a correct
checksum, and at most `member_bytes` bytes of body. `_are_plain` checks the details. Any other header ends the chain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ais_tar2tf.archive.tar_header import BLOCK

__all__ = ["LONGEST_NAME", "HeaderTable"]

LONGEST_NAME = 256  # bytes of a plain header's name, with its prefix and the slash between them

_USTA = np.uint32(int.from_bytes(b"usta", "little"))
_USTAR = np.uint64(int.from_bytes(b"ustar\x0000", "little"))
_GNU = np.uint64(int.from_bytes(b"ustar  \0", "little"))
_STAR = np.uint32(int.from_bytes(b"tar\0", "little"))
_OCTAL_11 = 8 ** np.arange(10, -1, -1, dtype=np.int64)
_OCTAL_6 = 8 ** np.arange(5, -1, -1, dtype=np.int64)
_EVERY_OTHER_BYTE = np.uint64(0x00FF_00FF_00FF_00FF)


def _plain_pattern() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the words `expected` and `mask`: `(header ^ expected) & mask` is 0 where all numbers are plain.

    mode, uid, gid  7 octal digits, then NUL or space
    size, mtime     11 octal digits, then NUL or space
    checksum        6 octal digits, NUL, space
    """
    expected, mask = np.zeros(BLOCK, np.uint8), np.zeros(BLOCK, np.uint8)
    expected[100:154], mask[100:154] = ord("0"), 0xF8
    for end in (107, 115, 123, 135, 147):
        expected[end], mask[end] = 0, 0xDF
    expected[154:156], mask[154:156] = (0, ord(" ")), 0xFF
    return expected.view("<u8"), mask.view("<u8")


_EXPECTED, _MASK = _plain_pattern()

_FILE, _PAX = ord("0"), ord("x")
_NOTHING_AFTER = np.zeros(256, bool)
_NOTHING_AFTER[list(b"123456")] = True
_KNOWN = _NOTHING_AFTER.copy()
_KNOWN[[_FILE, _PAX]] = True


class HeaderTable:
    """The candidates of `block[start:]`, each parsed as if it were a header.

    Each list has one item for each candidate:

    rows        row numbers, ascending
    types       type bytes
    sizes       bytes of the body; 0 for links, devices and directories
    names       names with their prefix
    plain       whether the candidate is a plain header
    following   the row at which the next header would begin
    only_files  whether all candidates have the type of a file
    """

    def __init__(self, block: memoryview, start: int, member_bytes: int) -> None:
        self._row_count = (len(block) - start) // BLOCK
        magic: npt.NDArray[np.uint32] = np.ndarray(
            (self._row_count,), "<u4", buffer=block, offset=start + 257, strides=(BLOCK,)
        )
        candidates = np.flatnonzero(magic == _USTA)
        view = np.frombuffer(block, np.uint8, self._row_count * BLOCK, start).reshape(-1, BLOCK)
        headers = view.take(candidates, axis=0)
        self._headers = headers
        types = headers[:, 156]
        sizes = (headers[:, 124:135].astype(np.int64) - 48).dot(_OCTAL_11)
        sizes[_NOTHING_AFTER[types]] = 0
        self._types = types
        self._prefixed = headers[:, 345] != 0
        self._short_names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100").ravel().tolist()
        self._plain = self._are_plain() & (sizes <= member_bytes)
        self._following = candidates + 1 + (sizes + (BLOCK - 1)) // BLOCK
        breaks = np.flatnonzero(~self._plain | (self._following != np.append(candidates[1:], self._following[-1:])))
        # From this index on, each candidate is plain and leads to the next one.
        self._chain_from: int = int(breaks[-1]) + 1 if breaks.size else 0
        self.rows: list[int] = candidates.tolist()
        self.sizes: list[int] = sizes.tolist()
        self.only_files: bool = bool((types == _FILE).all())

    def _are_plain(self) -> npt.NDArray[np.bool_]:
        headers = self._headers
        exact = np.ascontiguousarray(headers[:, 257:265]).view("<u8").ravel()
        is_ustar = exact == _USTAR
        star = np.ascontiguousarray(headers[:, 508:512]).view("<u4").ravel() == _STAR
        in_form, total = self._numbers_plain_and_sums()
        field = headers[:, 148:156]
        stated = (field[:, :6].astype(np.int64) - 48).dot(_OCTAL_6)
        computed = total - field.sum(axis=1, dtype=np.int64) + 8 * 32
        flavour = (is_ustar & ~star) | ((exact == _GNU) & ~self._prefixed)
        good = flavour & in_form & (stated == computed) & _KNOWN[self._types]
        if b"\0" in b"".join(self._short_names):  # bytes follow the NUL that ends a name
            good &= np.array([b"\0" not in name for name in self._short_names])
        return good

    def _numbers_plain_and_sums(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return for each candidate whether its numbers are plain, and the sum of its bytes.

        The headers of one shard differ in few words. Words that are equal in all headers are examined once.
        """
        words: npt.NDArray[np.uint64] = self._headers.view("<u8")
        differs = (words != words[:1]).any(axis=0)
        equal = words[:1, ~differs]
        odd = np.bitwise_or.reduce((equal ^ _EXPECTED[~differs]) & _MASK[~differs], axis=1)
        total = equal.view(np.uint8).sum(axis=1, dtype=np.int64)
        columns = words.T[differs]
        odd = odd | np.bitwise_or.reduce((columns ^ _EXPECTED[differs, None]) & _MASK[differs, None], axis=0)
        return odd == 0, total + _sum_of_bytes(columns)

    @cached_property
    def plain(self) -> list[bool]:
        return self._plain.tolist()

    @cached_property
    def types(self) -> list[int]:
        return self._types.tolist()

    @cached_property
    def following(self) -> list[int]:
        return self._following.tolist()

    def run(self, row: int) -> Sequence[int]:
        """Return the longest chain of plain headers from `row` on, as indices into the lists.

        Usually every candidate is in the chain. Data that looks like a header is not.
        """
        first = bisect_left(self.rows, row)
        last = len(self.rows)
        if first == last or self.rows[first] != row:
            return ()
        if first >= self._chain_from:
            return range(first, last)
        chain: list[int] = []
        at = first
        while at < last and self.rows[at] == row and self.plain[at]:
            chain.append(at)
            row = self.following[at]
            if row >= self._row_count:
                break
            at = bisect_left(self.rows, row, at + 1)
        return chain

    @cached_property
    def names(self) -> list[bytes]:
        names = self._short_names
        for at in np.flatnonzero(self._prefixed).tolist():
            prefix = self._headers[at, 345:500].tobytes().partition(b"\0")[0]
            names[at] = prefix + b"/" + names[at]
        return names


def _sum_of_bytes(columns: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the sum of the bytes of each column. A column has at most 64 words."""
    # Each word of `fours` holds four sums of 16 bits. Each word of a column adds two bytes to each of these sums. So
    # a sum adds at most 128 bytes, and does not overflow.
    fours = (columns & _EVERY_OTHER_BYTE).sum(axis=0) + ((columns >> np.uint64(8)) & _EVERY_OTHER_BYTE).sum(axis=0)
    return np.ascontiguousarray(fours).view("<u2").reshape(-1, 4).sum(axis=1, dtype=np.int64)
