"""Finds the plain tar headers of a block with few, large members, by going from each header to the next.

For such a block, a `HeaderTable` (`tar_table.py`) would be slower: the table looks at every row of 512 bytes in the
block, and calls numpy functions for the few rows that are headers.

A *plain* header is a ustar or GNU header with ordinary octal numbers and a correct checksum. This module
and `tar_table.py` must accept the same headers as plain. This module leaves all other headers to the caller, and must
not do I/O.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left

from ais_tar2tf.archive.tar_header import BLOCK

__all__ = ["HeaderWalk"]

# The fields of a header from byte 100 on: mode, uid, gid; size; mtime; checksum; type; link name; magic.
_PLAIN = re.compile(
    rb"(?:[0-7]{7}[ \0]){3}([0-7]{11})[ \0][0-7]{11}[ \0]([0-7]{6})\0 ([0-6x]).{100}ustar(\x0000|  \0)", re.DOTALL
)
_FILE, _PAX = ord("0"), ord("x")


def _byte_sum(data: bytes) -> int:
    """Return the sum of at most 256 bytes.

    The lower half of Adler-32 is this sum plus 1, modulo 65521. The sum of 256 bytes plus 1 is smaller than 65521.
    """
    return (zlib.adler32(data) & 0xFFFF) - 1


class HeaderWalk:
    """Finds the plain headers in `block[start:]`. The header of a member larger than `member_bytes` is not plain.

    The lists `rows`, `types`, `sizes` and `names` have the same meaning as in `HeaderTable`, but have no entries for
    rows that are not headers. Rows are the pieces of 512 bytes of `block[start:]`.
    """

    def __init__(self, block: memoryview, start: int, member_bytes: int) -> None:
        self._block = block
        self._start = start
        self._row_count = (len(block) - start) // BLOCK
        self._member_bytes = member_bytes
        self.rows: list[int] = []
        self.types: list[int] = []
        self.sizes: list[int] = []
        self.names: list[bytes] = []
        self.only_files = True

    def run(self, row: int) -> range:
        """Return the chain of plain headers from `row` on, as indices into the lists.

        A header that is not plain ends the chain. If the header at `row` is not plain, the result is empty.
        """
        first = bisect_left(self.rows, row)
        if first == len(self.rows):
            self._walk(row)
        last = len(self.rows)
        return range(first, last) if first < last and self.rows[first] == row else range(0)

    def _walk(self, row: int) -> None:
        """Append the chain of plain headers that begins at `row` to the lists."""
        while row < self._row_count:
            at = self._start + row * BLOCK
            raw = bytes(self._block[at : at + BLOCK])
            found = _PLAIN.match(raw, 100)
            name = raw[:100].rstrip(b"\0")
            if found is None or b"\0" in name:
                return
            size, checksum, kind = int(found[1], 8), int(found[2], 8), raw[156]
            if kind not in (_FILE, _PAX):
                size = 0  # links, devices and directories have no body
            total = _byte_sum(raw[:148]) + 8 * 32 + _byte_sum(raw[156:334]) + _byte_sum(raw[334:])
            is_gnu, prefix = found[4] == b"  \0", raw[345:500].partition(b"\0")[0]
            other_prefix = bool(raw[345]) if is_gnu else raw[508:] == b"tar\0"
            if checksum != total or size > self._member_bytes or other_prefix:
                return
            self.rows.append(row)
            self.types.append(kind)
            self.sizes.append(size)
            self.names.append(prefix + b"/" + name if raw[345] else name)
            self.only_files = self.only_files and kind == _FILE
            row += 1 + (size + BLOCK - 1) // BLOCK
