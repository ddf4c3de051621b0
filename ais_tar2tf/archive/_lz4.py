"""lz4, in its frame format: the one that the lz4 program writes."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.archive._frames import Format, Frame
from ais_tar2tf.options import Limits

__all__ = ["LZ4", "LZ4_LEGACY"]

LZ4_LEGACY = b"\x02\x21\x4c\x18"  # without an end mark or checksums; `lz4 -l`, for old Linux kernels


def _open(_limits: Limits) -> Frame:
    from lz4 import frame

    decompressor: Any = frame.LZ4FrameDecompressor()
    return decompressor


LZ4 = Format(
    name="lz4",
    magic=b"\x04\x22\x4d\x18",
    open=_open,
    damaged=(RuntimeError,),
    skippable=True,
)
