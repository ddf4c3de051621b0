"""bzip2: the standard library's."""

from __future__ import annotations

import bz2

from ais_tar2tf.archive._frames import Format, Frame
from ais_tar2tf.options import KIB, Limits

__all__ = ["BZIP2"]


def _open(_limits: Limits) -> Frame:
    return bz2.BZ2Decompressor()


BZIP2 = Format(name="bzip2", magic=b"BZh", open=_open, damaged=(OSError, ValueError), piece=64 * KIB)
