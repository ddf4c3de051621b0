"""Finds many plain members of one block of a tar at once. No I/O.

A *plain header* is a ustar or GNU header with octal numbers and a correct checksum. Its type is a file, a link, a
device, a directory, a FIFO or a PAX header. A *plain member* has a plain header, and its data end in the same block.

`PlainMembers` returns runs of consecutive plain members. This module must not raise errors about the archive: it
leaves all other members, and every fault, to `tar.py`, which reads one header at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ais_tar2tf.archive.members import ListedMembers, Members, decode_names
from ais_tar2tf.archive.tar_header import BLOCK, is_time_only_pax, parse_pax
from ais_tar2tf.archive.tar_table import HeaderTable
from ais_tar2tf.archive.tar_walk import HeaderWalk
from ais_tar2tf.errors import ArchiveError
from ais_tar2tf.options import Limits

__all__ = ["PlainMembers", "PlainRun"]

# A row is 512 bytes of the block. If there are more rows than this for each header, as with members over 16 KB, a
# walk is faster than a table.
_SPARSE_ROWS = 32
_PAX_TYPE = ord("x")
_FILE_TYPE = ord("0")


class PlainRun(NamedTuple):
    """Consecutive plain members of one block."""

    members: Members
    ignored: int  # members among them that are not files
    end: int  # position after the last member's padding; the padding may reach beyond the end of the block


class PlainMembers:
    """Finds runs of plain members in one block of a tar.

    Args:
        block: The block.
        start: The position in the block at which a header begins.
        base: The offset of the block in the archive.
        limits: Bounds on the sizes of members and headers.
        dense: Whether the block is expected to have many headers. If so, a table of all rows of the block finds the
            headers. Otherwise, a walk from each header to the next one finds them.
    """

    def __init__(self, block: memoryview, start: int, base: int, limits: Limits, *, dense: bool) -> None:
        self._block = block
        self._start = start
        self._base = base
        self._limits = limits
        self._table: HeaderTable | HeaderWalk = (HeaderTable if dense else HeaderWalk)(
            block, start, limits.member_bytes
        )

    @property
    def is_dense(self) -> bool:
        """Whether this block has so many headers that a table is faster than a walk."""
        return len(self._table.rows) * _SPARSE_ROWS > (len(self._block) - self._start) // BLOCK

    def take(self, position: int) -> PlainRun | None:
        """Return the run of plain members from `position` on; None if `tar.py` must read the member there."""
        table = self._table
        run = table.run((position - self._start) // BLOCK)
        if run and self._position(run[-1]) + BLOCK + table.sizes[run[-1]] > len(self._block):
            run = run[:-1]
        while run and not table.only_files and table.types[run[-1]] == _PAX_TYPE:
            run = run[:-1]  # a PAX header goes with the member that it describes
        if not run:
            return None
        ignored = 0
        if isinstance(run, range) and table.only_files:
            members = self._all_of(run)
        else:
            members, ignored, run = self._files_among(run)
            if not run:
                return None
        end = self._position(run[-1]) + BLOCK + table.sizes[run[-1]]
        return PlainRun(members, ignored, end + (self._start - end) % BLOCK)

    def _position(self, index: int) -> int:
        """Return the position in the block of the header with the number `index` in the table."""
        return self._start + self._table.rows[index] * BLOCK

    def _all_of(self, run: range) -> Members:
        """Return the members of a run that has only files."""
        chosen = slice(run.start, run.stop)
        positions = np.array(self._table.rows[chosen], np.int64) * BLOCK + self._start
        return ListedMembers(
            decode_names(b"\0".join(self._table.names[chosen]), run.stop - run.start),
            (positions + self._base).tolist(),
            (positions + BLOCK).tolist(),
            self._table.sizes[chosen],
            self._block,
        )

    def _files_among(self, run: Sequence[int]) -> tuple[Members, int, Sequence[int]]:
        """Return the files of a run, the number of its other members, and the part of the run that was read.

        This part ends before the first PAX header that `tar.py` must read.
        """
        names, offsets, starts, sizes = list[bytes](), list[int](), list[int](), list[int]()
        rows, types, raw_names = self._table.rows, self._table.types, self._table.names
        ignored = 0
        pax_at: int | None = None  # where the PAX header begins that precedes the current header, if any
        pax_name: bytes | None = None  # the path that the PAX header states
        for at, index in enumerate(run):
            begin = self._start + rows[index] * BLOCK
            size = self._table.sizes[index]
            if types[index] == _PAX_TYPE:
                simple, pax_name = True, None
                if not is_time_only_pax(self._block, begin + BLOCK, begin + BLOCK + size):
                    simple, pax_name = self._read_pax(begin + BLOCK, size)
                if not simple or pax_at is not None:
                    run = run[: at if pax_at is None else at - 1]
                    break
                pax_at = begin
                continue
            if types[index] == _FILE_TYPE:
                names.append(pax_name or raw_names[index])
                offsets.append(self._base + (begin if pax_at is None else pax_at))
                starts.append(begin + BLOCK)
                sizes.append(size)
            else:
                ignored += 1
            pax_at = pax_name = None
        decoded = decode_names(b"\0".join(names), len(names))
        return ListedMembers(decoded, offsets, starts, sizes, self._block), ignored, run

    def _read_pax(self, begin: int, size: int) -> tuple[bool, bytes | None]:
        """Return (True, name) for a PAX header that changes at most the name of the next member, else (False, None).

        The name is None if the header leaves it unchanged. For a malformed header, the result is (False, None). Then
        `tar.py` raises the error, after the members before this header were handed out.
        """
        if size > self._limits.name_bytes or size > self._limits.header_bytes:
            return False, None
        try:
            records = parse_pax(bytes(self._block[begin : begin + size]), "", 0)
        except ArchiveError:
            return False, None
        if b"size" in records or any(key.startswith(b"GNU.") for key in records):
            return False, None
        return True, records.get(b"path")
