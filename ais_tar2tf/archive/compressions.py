"""The formats in which a shard may be compressed, each described by one `Compression`. This module must not do I/O.

To add a format, describe it here and append it to `COMPRESSIONS`: `sniff.py` recognises it by its magic bytes, and
`decompression.py` reads it.

A compressed shard consists of one or more frames, one after another. gzip calls a frame a member; xz and bzip2 call
a frame a stream. This package always says frame.
"""

from __future__ import annotations

import bz2
import functools
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from isal import igzip_lib

from ais_tar2tf.archive.members import Bytes
from ais_tar2tf.options import KIB, MIB, Limits

__all__ = ["BZIP2", "COMPRESSIONS", "GZIP", "LZ4", "XZ", "ZSTD", "Compression", "Frame"]


class Frame(Protocol):
    """The decompressor of one frame, with the interface that bz2, lzma, zstd, lz4 and isal share."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Bytes, max_length: int = -1) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Compression:
    """One compressed format: how its frames begin, and how a library decompresses them."""

    name: str
    magic: bytes  # the first bytes of every frame
    open: Callable[[Limits], Frame]  # returns a decompressor for one frame
    # Returns the exceptions that the library raises for damaged bytes. It may have to import the library.
    errors: Callable[[], tuple[type[Exception], ...]]
    # A part of the error's text by which the library refuses a frame that needs more memory than Limits.window_bytes.
    # None: the library does not refuse such a frame.
    memory_message: str | None = None
    padding: int = 0  # the zeros after a frame must be a multiple of this number; 0: the format has no padding
    skippable: bool = False  # the format has frames without content, which the reader skips
    # The most bytes that are passed to one call of `decompress`. They are few, because libraries copy input that they
    # cannot use yet.
    input_bytes: int = 256 * KIB
    # The most bytes that one call of `decompress` returns. With smaller outputs, more members are cut in two; larger
    # outputs do not fit in the processor's cache.
    output_bytes: int = 1 * MIB


@functools.cache  # before Python 3.14, a search for the missing `compression` takes longer than reading a small frame
def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # from Python 3.14 on
    except ImportError:
        from backports import zstd
    return zstd


def _open_zstd(limits: Limits) -> Frame:
    zstd = _zstd()
    # zstd states the size of its window (the bytes to look back) as a power of two: from 2**10 to at most 2**31.
    window_log = max(10, min(31, limits.window_bytes.bit_length() - 1))
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})


def _open_lz4(_limits: Limits) -> Frame:
    from lz4 import frame

    decompressor: Any = frame.LZ4FrameDecompressor()
    return decompressor


GZIP = Compression(
    name="gzip",
    magic=b"\x1f\x8b",
    open=lambda _limits: cast("Frame", igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)),
    errors=lambda: (cast("type[Exception]", igzip_lib.IsalError),),  # isal's type stub declares it as an instance
    padding=1,  # any number of zeros, as the gzip program accepts
    # isal seldom copies input: it uses up its input in one call, unless a decompression bomb fills the output.
    input_bytes=1 * MIB,
    # So large that one call usually suffices for an input. Each call waits for the interpreter's lock.
    output_bytes=3 * MIB,
)
ZSTD = Compression(
    name="zstd",
    magic=b"\x28\xb5\x2f\xfd",
    open=_open_zstd,
    errors=lambda: (_zstd().ZstdError,),
    memory_message="too much memory",
    skippable=True,
)
LZ4 = Compression(
    name="lz4",
    magic=b"\x04\x22\x4d\x18",  # the magic bytes of the frame format, which the lz4 program writes
    open=_open_lz4,
    errors=lambda: (RuntimeError,),
    skippable=True,
)
BZIP2 = Compression(
    name="bzip2",
    magic=b"BZh",
    open=lambda _limits: bz2.BZ2Decompressor(),
    errors=lambda: (OSError, ValueError),
    input_bytes=64 * KIB,
)
XZ = Compression(
    name="xz",
    magic=b"\xfd7zXZ\0",
    open=lambda limits: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.window_bytes),
    errors=lambda: (lzma.LZMAError,),
    memory_message="memory usage limit",
    padding=4,  # the format demands a multiple of four zeros
    input_bytes=64 * KIB,
)
COMPRESSIONS = (GZIP, ZSTD, LZ4, BZIP2, XZ)
