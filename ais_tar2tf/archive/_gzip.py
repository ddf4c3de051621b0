"""gzip: through isal, which verifies checksum and length of every member."""

from __future__ import annotations

from typing import cast

from isal import igzip_lib

from ais_tar2tf.archive._frames import Format, Frame
from ais_tar2tf.options import MIB, Limits

__all__ = ["GZIP"]


def _open(_limits: Limits) -> Frame:
    return cast("Frame", igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP))


GZIP = Format(
    name="gzip",
    magic=b"\x1f\x8b",
    open=_open,
    damaged=(cast("type[Exception]", igzip_lib.IsalError),),
    padding=1,  # as gzip itself has it
    piece=1 * MIB,  # isal takes all of it but what a bomb holds back
    given=3 * MIB,  # mostly all of a piece by one call: behind each, a thread waits for the interpreter
)
