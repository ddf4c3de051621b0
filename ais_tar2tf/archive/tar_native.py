"""Finds many plain members of one block or file of a tar at once, by the native step.

The result is that of `tar_runs.py`, in arrays. Headers that are not plain, and every error, are left to `tar.py`.
"""

from __future__ import annotations

from ais_tar2tf.archive.members import MemberTable
from ais_tar2tf.archive.tar_runs import PlainRun
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.native import TarLibrary
from ais_tar2tf.options import Limits

__all__ = ["NativeRuns"]


class NativeRuns:
    """Finds runs of plain members in the blocks of one tar, or in its file."""

    def __init__(self, library: TarLibrary, limits: Limits) -> None:
        self._library = library
        self._member_bytes = limits.member_bytes
        self._pax_bytes = min(limits.name_bytes, limits.header_bytes)

    def take(self, block: memoryview, position: int, base: int, most_again: int) -> PlainRun | None:
        """Return the run of plain members from `position` on; None if the header there is not plain.

        Args:
            block: A block of the tar.
            position: Where a header begins in the block.
            base: The offset of the block in the tar.
            most_again: As in `TarReader.feed`.
        """
        walked = self._library.walk(block, position, member_bytes=self._member_bytes, pax_bytes=self._pax_bytes)
        if walked is None:
            return None
        again_from = None if walked.ignored or not walked.missing else len(block) + walked.missing - most_again
        return PlainRun(MemberTable(walked, base, block, again_from), walked.ignored, walked.position)

    def take_from(self, file: FileBytes, position: int, stop: int, enough: int) -> PlainRun | None:
        """Return the run of plain members from `position` on in a file; None if the header there is not plain.

        Args:
            file: The tar. Only its headers are read.
            position: Where a header begins in the file.
            stop: A member that ends later is left out.
            enough: Members that begin at this offset or later are left out.
        """
        walked = file.walk(
            self._library, position, stop, enough, member_bytes=self._member_bytes, pax_bytes=self._pax_bytes
        )
        return None if walked is None else PlainRun(MemberTable(walked, 0, file), walked.ignored, walked.position)
