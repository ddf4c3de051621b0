"""What the first bytes of a file say: images with their size, arrays with their type. Nothing is decoded, no I/O."""

from __future__ import annotations

import ast
import math
import struct
from dataclasses import dataclass

import numpy as np

__all__ = [
    "ArrayHeader",
    "ImageHeader",
    "array_header",
    "foreign_image",
    "image_header",
    "is_cut_image",
    "media_kind",
]

_NPY = b"\x93NUMPY"
_NPY_LONGEST = 64 * 1024  # bytes of an npy header; numpy itself refuses over 10,000
# Start-of-frame markers: all of C0..CF but DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_SCAN = 0xDA
_MOST_PARTS = 4_096  # segments or chunks before the picture: a profile of 16 MB takes 256
_MOST_FILL = 64  # bytes of fill before a marker; encoders write none, or align to a word
_MOST_SIZES = 32  # of an array; numpy 1 has no more
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type; a palette holds three


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """An image's format, as TensorFlow calls it, and what it decodes to: height, width, channels."""

    format: str
    height: int
    width: int
    channels: int
    dtype: str = "uint8"


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """An npy file's type and shape, and where its bytes begin."""

    dtype: str
    shape: tuple[int, ...]
    fortran_order: bool
    begin: int


_FOREIGN = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"\0\0\0\x0cjP  \r\n": "JPEG 2000",
    b"P5\n": "PGM",
    b"P6\n": "PPM",
}
_FOREIGN_BRANDS = {b"ftypavif": "AVIF", b"ftypheic": "HEIC", b"ftypmif1": "HEIC"}


def foreign_image(data: bytes) -> str | None:
    """Return the format of an image that TensorFlow does not decode; None for anything else.

    >>> foreign_image(b"II*\\0" + bytes(8)), foreign_image(b"GIF89a")
    ('TIFF', None)
    """
    known = (name for mark, name in _FOREIGN.items() if data.startswith(mark))
    return next(known, _FOREIGN_BRANDS.get(data[4:12]))


def image_header(data: bytes) -> ImageHeader | None:
    """JPEG, PNG, GIF, BMP or WebP; None for anything else, and for a header that is cut or makes no sense.

    >>> image_header(b"GIF89a" + bytes([40, 0, 30, 0, 0, 0, 0]))
    ImageHeader(format='gif', height=30, width=40, channels=3, dtype='uint8')
    """
    try:
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return _png(data)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack_from("<HH", data, 6)
            return _sound(ImageHeader("gif", height, width, 3))
        if data[:2] == b"BM":
            return _bmp(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError, _NoEndError):
        return None  # it ends within its header
    return None


def is_cut_image(data: bytes) -> bool:
    """Return whether a JPEG or PNG lacks its end mark, or a WebP bytes that it should have; False for anything else.

    >>> is_cut_image(b"RIFF\\x64\\0\\0\\0WEBPVP8 "), is_cut_image(b"text")
    (True, False)
    """
    if data[:3] == b"\xff\xd8\xff":
        return _is_cut_jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return data.rfind(b"IEND") < 0
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP" and int.from_bytes(data[4:8], "little") + 8 > len(data)


def _is_cut_jpeg(data: bytes) -> bool:
    """Look behind the start of the first scan: a profile before it may hold a JPEG of its own, with its end mark."""
    at = 2
    for _ in range(_MOST_PARTS):
        if at + 4 > len(data):
            return True
        marker = data[at + 1]
        if data[at] != 0xFF:
            return False  # damaged, which a decoder tells
        if marker == _SCAN:
            return data.rfind(b"\xff\xd9", at) < 0
        alone = marker in _ALONE or marker == 0xFF  # FF: fill before the marker
        at += (1 if marker == 0xFF else 2) if alone else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


class _NoEndError(Exception):
    """A header goes on for longer than any honest one."""


def _sound(header: ImageHeader) -> ImageHeader | None:
    return header if header.height and header.width and header.channels else None


def _jpeg(data: bytes) -> ImageHeader | None:
    """FF marker, then two bytes of length that count themselves, until the start of a frame."""
    at = 2
    for _ in range(_MOST_PARTS):
        if data[at] != 0xFF:
            return None
        at = _behind_fill(data, at)
        marker = data[at + 1]
        if marker in _ALONE:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _FRAMES:
            _, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            return _sound(ImageHeader("jpeg", height, width, components))
        if marker == 0xDA or length < 2:  # a scan before any frame
            return None
        at += 2 + length
    raise _NoEndError


def _behind_fill(data: bytes, at: int) -> int:
    """Return where the last FF stands of those before a marker."""
    for place in range(at, at + _MOST_FILL):
        if data[place + 1] != 0xFF:
            return place
    raise _NoEndError


def _png(data: bytes) -> ImageHeader | None:
    """The first chunk is IHDR: width, height, depth, colour type; a palette with tRNS decodes to four channels."""
    if data[12:16] != b"IHDR":
        return None
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    channels = _PNG_CHANNELS.get(colour, 0)
    if colour == 3 and _has_transparency(data):
        channels = 4
    return _sound(ImageHeader("png", height, width, channels, "uint16" if depth == 16 else "uint8"))


def _has_transparency(data: bytes) -> bool:
    at = 8
    for _ in range(_MOST_PARTS):
        if at + 8 > len(data):
            return False
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if kind == b"tRNS":
            return True
        if kind in (b"IDAT", b"IEND"):
            return False
        at += 12 + length
    raise _NoEndError


def _bmp(data: bytes) -> ImageHeader | None:
    size, width, height = struct.unpack_from("<Iii", data, 14)
    (bits,) = struct.unpack_from("<H", data, 28)
    if size not in (40, 52, 56, 108, 124) or bits not in (8, 24, 32):
        return None
    return _sound(ImageHeader("bmp", abs(height), width, {8: 1, 24: 3, 32: 4}[bits])) if width > 0 else None


def _webp(data: bytes) -> ImageHeader | None:
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return _sound(ImageHeader("webp", height & 0x3FFF, width & 0x3FFF, 3))
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return ImageHeader("webp", (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4 if bits >> 28 & 1 else 3)
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        if len(data) < 30:
            return None
        return ImageHeader("webp", height, width, 4 if data[20] & 0x10 else 3)
    return None


def array_header(data: bytes) -> ArrayHeader | None:
    """An npy file's header; None for anything else, and for one that would need pickle.

    magic (6 bytes), version (2), length of the header (2 or 4, little-endian), a Python literal of a dict
    """
    if data[:6] != _NPY or len(data) < 12:
        return None
    wide = data[6] > 1
    begin = 12 if wide else 10
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    if length > _NPY_LONGEST or begin + length > len(data):
        return None
    try:
        said = ast.literal_eval(data[begin : begin + length].decode("utf-8" if data[6] > 2 else "latin-1").strip())
        dtype, shape = np.dtype(said["descr"]), tuple(int(size) for size in said["shape"])
        fortran_order = bool(said["fortran_order"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError, OverflowError):
        return None
    if dtype.hasobject or dtype.names is not None or not _is_shape(shape, dtype.itemsize):
        return None
    return ArrayHeader(dtype.newbyteorder("=").name, shape, fortran_order, begin + length)


def _is_shape(shape: tuple[int, ...], itemsize: int) -> bool:
    """Return whether there can be an array of that shape."""
    if len(shape) > _MOST_SIZES or min(shape, default=0) < 0:
        return False
    return math.prod(max(1, size) for size in shape) * max(1, itemsize) < 1 << 63


def media_kind(data: bytes) -> str | None:
    """The kind of a file that begins with a mark of its own and is neither an image nor an npy file."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "audio"
    if data[:4] == b"fLaC":
        return "audio"
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    if data[:3] == b"CDF" and data[3:4] in (b"\x01", b"\x02", b"\x05"):
        return "netcdf"
    return None
