"""xz: the standard library's."""

from __future__ import annotations

import lzma

from ais_tar2tf.archive._frames import Format, Frame, WindowTooLarge
from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.options import KIB, Limits

__all__ = ["XZ"]


class _Stream:
    """Tells a stream that asks for more memory than it may from one that is damaged."""

    def __init__(self, limits: Limits) -> None:
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.window_bytes)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return self._stream.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: Bytes, max_length: int = -1) -> bytes:
        try:
            return self._stream.decompress(data, max_length)
        except lzma.LZMAError as error:
            if "memory usage limit" in str(error).lower():
                raise WindowTooLarge(str(error)) from error
            raise


def _open(limits: Limits) -> Frame:
    return _Stream(limits)


XZ = Format(
    name="xz",
    magic=b"\xfd7zXZ\0",
    open=_open,
    damaged=(lzma.LZMAError,),
    padding=4,  # as the format has it
    piece=64 * KIB,
)
