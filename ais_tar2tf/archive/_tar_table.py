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
_EVERY_OTHER_BYTE = np.uint64(0x00FF_00FF_00FF_00FF)


def _form() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """As words: (header ^ the first) & the second is 0 for a plain one.

    mode, uid, gid: 7 digits and an end; size, mtime: 11 digits and an end; checksum: 6 digits, NUL, space.
    """
    expected, counts = np.zeros(BLOCK, np.uint8), np.zeros(BLOCK, np.uint8)
    expected[100:154], counts[100:154] = ord("0"), 0xF8
    for end in (107, 115, 123, 135, 147):
        expected[end], counts[end] = 0, 0xDF
    expected[154:156], counts[154:156] = (0, ord(" ")), 0xFF
    return expected.view("<u8"), counts.view("<u8")


_EXPECTED, _COUNTS = _form()

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
        self._types = types
        self._prefixed = headers[:, 345] != 0
        self._short_names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100").ravel().tolist()
        self._plain = self._are_plain() & (sizes <= member_bytes)
        self._following = candidates + 1 + (sizes + (BLOCK - 1)) // BLOCK
        breaks = np.flatnonzero(~self._plain | (self._following != np.append(candidates[1:], self._following[-1:])))
        self._closed_from: int = int(breaks[-1]) + 1 if breaks.size else 0
        self.rows: list[int] = candidates.tolist()
        self.sizes: list[int] = sizes.tolist()
        self.only_files: bool = bool((types == _FILE).all())  # every candidate is an ordinary one

    def _are_plain(self) -> npt.NDArray[np.bool_]:
        headers = self._headers
        exact = np.ascontiguousarray(headers[:, 257:265]).view("<u8").ravel()
        is_ustar = exact == _USTAR
        star = np.ascontiguousarray(headers[:, 508:512]).view("<u4").ravel() == _STAR
        in_form, total = self._form_and_sum()
        field = headers[:, 148:156]
        said = (field[:, :6].astype(np.int64) - 48).dot(_OCTAL_6)
        found = total - field.sum(axis=1, dtype=np.int64) + 8 * 32
        flavour = (is_ustar & ~star) | ((exact == _GNU) & ~self._prefixed)
        good = flavour & in_form & (said == found) & _KNOWN[self._types]
        if b"\0" in b"".join(self._short_names):  # behind the first NUL of a name there is more
            good &= np.array([b"\0" not in name for name in self._short_names])
        return good

    def _form_and_sum(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Whether each header has its numbers in form, and the sum of its bytes.

        Headers of one shard are unlike each other in few of their words: what is like the first is looked at once.
        """
        words: npt.NDArray[np.uint64] = self._headers.view("<u8")
        unlike = (words != words[:1]).any(axis=0)
        alike = words[:1, ~unlike]
        odd = np.bitwise_or.reduce((alike ^ _EXPECTED[~unlike]) & _COUNTS[~unlike], axis=1)
        total = alike.view(np.uint8).sum(axis=1, dtype=np.int64)
        columns = words.T[unlike]
        odd = odd | np.bitwise_or.reduce((columns ^ _EXPECTED[unlike, None]) & _COUNTS[unlike, None], axis=0)
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
    def names(self) -> list[bytes]:
        """The name of every candidate, with its prefix."""
        names = self._short_names
        for at in np.flatnonzero(self._prefixed).tolist():
            prefix = self._headers[at, 345:500].tobytes().partition(b"\0")[0]
            names[at] = prefix + b"/" + names[at]
        return names


def _sum_of_bytes(columns: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Of each column of words; 64 of them do not fill 16 bits of two bytes each."""
    fours = (columns & _EVERY_OTHER_BYTE).sum(axis=0) + ((columns >> np.uint64(8)) & _EVERY_OTHER_BYTE).sum(axis=0)
    return np.ascontiguousarray(fours).view("<u2").reshape(-1, 4).sum(axis=1, dtype=np.int64)
