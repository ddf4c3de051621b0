"""zstd: the standard library's from Python 3.14 on, and its backport before."""

from __future__ import annotations

import functools
from typing import Any

from ais_tar2tf.archive._frames import Format, Frame, WindowTooLarge
from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.options import Limits

__all__ = ["ZSTD"]


class ZstdDamaged(Exception):
    """The library's own error, under a name that is known before the library is loaded."""


@functools.cache  # a search for a module that is not there takes longer than a small frame
def _library() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found]
    except ImportError:
        from backports import zstd
    return zstd


class _Frame:
    def __init__(self, limits: Limits) -> None:
        zstd = _library()
        # A power of two; the library looks no further back than 2**31 bytes.
        window = max(10, min(31, limits.window_bytes.bit_length() - 1))
        self._failure: type[Exception] = zstd.ZstdError
        self._frame: Any = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window})

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return self._frame.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: Bytes, max_length: int = -1) -> bytes:
        try:
            return self._frame.decompress(data, max_length)
        except self._failure as error:
            if "too much memory" in str(error):
                raise WindowTooLarge(str(error)) from error
            raise ZstdDamaged(str(error)) from error


def _open(limits: Limits) -> Frame:
    return _Frame(limits)


ZSTD = Format(name="zstd", magic=b"\x28\xb5\x2f\xfd", open=_open, damaged=(ZstdDamaged,), skippable=True)
