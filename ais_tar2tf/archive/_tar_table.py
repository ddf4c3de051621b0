"""All plain tar headers of a block at once, by numpy; what it does not vouch for is left to the careful path.

The block is seen as rows of 512 bytes. Every row with `ustar` in its place is a candidate: a header, or data
that looks like one. Which of them are headers only the walk from one header to the next can tell; this table
says for each candidate what it would be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ais_tar2tf.archive._tar_header import BLOCK

__all__ = ["LONGEST_NAME", "HeaderTable"]

LONGEST_NAME = 256  # bytes, with its prefix and the slash between them

_USTA = np.uint32(int.from_bytes(b"usta", "little"))
_USTAR = np.uint64(int.from_bytes(b"ustar\x0000", "little"))
_GNU = np.uint64(int.from_bytes(b"ustar  \0", "little"))
_STAR = np.uint32(int.from_bytes(b"tar\0", "little"))
_OCTAL_11 = 8 ** np.arange(10, -1, -1, dtype=np.int64)
_OCTAL_6 = 8 ** np.arange(5, -1, -1, dtype=np.int64)

# mode, uid, gid (7 digits and an end), size, mtime (11 digits and an end): (byte ^ XOR) & AND is 0 for a good one.
_ENDS = np.isin(np.arange(48), [7, 15, 23, 35, 47])
_NUMBERS_XOR = np.where(_ENDS, 0, 0x30).astype(np.uint8)
_NUMBERS_AND = np.where(_ENDS, 0xDF, 0xF8).astype(np.uint8)
# checksum: six digits, NUL, space
_SUM_XOR = np.array([0x30] * 6 + [0, 0x20], np.uint8)
_SUM_AND = np.array([0xF8] * 6 + [0xFF, 0xFF], np.uint8)

_FILE, _PAX = ord("0"), ord("x")
_NOTHING_AFTER = np.zeros(256, bool)
_NOTHING_AFTER[list(b"123456")] = True
_KNOWN = _NOTHING_AFTER.copy()
_KNOWN[[_FILE, _PAX]] = True


class HeaderTable:
    """What each candidate row of `block[start:]` says, if it is a header.

    rows      the candidates' row numbers, ascending
    plain     whether the candidate is an ordinary header, wholly checked
    following the row where the next header would be
    """

    def __init__(self, block: memoryview, start: int, member_bytes: int) -> None:
        count = (len(block) - start) // BLOCK
        magic: npt.NDArray[np.uint32] = np.ndarray(
            (count,), "<u4", buffer=block, offset=start + 257, strides=(BLOCK,)
        )
        candidates = np.flatnonzero(magic == _USTA)
        view = np.frombuffer(block, np.uint8, count * BLOCK, start).reshape(count, BLOCK)
        headers = view.take(candidates, axis=0)
        self._headers = headers
        types = headers[:, 156]
        sizes = (headers[:, 124:135].astype(np.int64) - 48).dot(_OCTAL_11)
        sizes[_NOTHING_AFTER[types]] = 0
        self._prefixed = headers[:, 345] != 0
        self._short_names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100").ravel().tolist()
        plain = self._plain() & (sizes <= member_bytes)
        following = candidates + 1 + (sizes + (BLOCK - 1)) // BLOCK
        breaks = np.flatnonzero(~plain | (following != np.append(candidates[1:], following[-1:])))
        self._closed_from: int = int(breaks[-1]) + 1 if breaks.size else 0
        self.rows: list[int] = candidates.tolist()
        self.plain: list[bool] = plain.tolist()
        self.sizes: list[int] = sizes.tolist()
        self.types: list[int] = types.tolist()
        self.following: list[int] = following.tolist()

    def _plain(self) -> npt.NDArray[np.bool_]:
        headers = self._headers
        exact = np.ascontiguousarray(headers[:, 257:265]).view("<u8").ravel()
        is_ustar = exact == _USTAR
        star = np.ascontiguousarray(headers[:, 508:512]).view("<u4").ravel() == _STAR
        numbers = ~((headers[:, 100:148] ^ _NUMBERS_XOR) & _NUMBERS_AND).any(axis=1)
        field = headers[:, 148:156]
        written = ~((field ^ _SUM_XOR) & _SUM_AND).any(axis=1)
        said = (field[:, :6].astype(np.int64) - 48).dot(_OCTAL_6)
        found = headers.sum(axis=1, dtype=np.uint32) - field.sum(axis=1, dtype=np.uint32) + np.uint32(8 * 32)
        flavour = (is_ustar & ~star) | ((exact == _GNU) & ~self._prefixed)
        good = flavour & numbers & written & (said == found) & _KNOWN[self._headers[:, 156]]
        if b"\0" in b"".join(self._short_names):  # behind the first NUL of a name there is more
            good &= np.array([b"\0" not in name for name in self._short_names])
        return good

    def run(self, row: int, rows: int) -> Sequence[int]:
        """The longest chain of plain headers from `row` on, as indices of candidates.

        The chain usually takes every candidate; it doesn't when data between headers looks like one too.
        """
        first = bisect_left(self.rows, row)
        last = len(self.rows)
        if first == last or self.rows[first] != row:
            return ()
        if first >= self._closed_from:
            return range(first, last)
        chain: list[int] = []
        at = first
        while at < last and self.rows[at] == row and self.plain[at]:
            chain.append(at)
            row = self.following[at]
            if row >= rows:
                break
            at = bisect_left(self.rows, row, at + 1)
        return chain

    @cached_property
    def only_files(self) -> bool:
        """Every candidate is an ordinary file."""
        return self.types.count(_FILE) == len(self.types)

    @cached_property
    def names(self) -> list[bytes]:
        """The name of every candidate, with its prefix."""
        names = self._short_names
        for at in np.flatnonzero(self._prefixed).tolist():
            prefix = self._headers[at, 345:500].tobytes().partition(b"\0")[0]
            names[at] = prefix + b"/" + names[at]
        return names
