"""Functions that read headers of files: images, `.npy` files, audio, HDF5 and netCDF.

The functions return the format, size and pixel type of an image, the type and shape of a `.npy` file, or the kind of
another file. All of them except `is_cut_image` need only the first bytes of a file. This module must not decode files
or do I/O.
"""

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
_MAX_NPY_HEADER = 64 * 1024  # bytes; numpy refuses headers over 10,000
# The JPEG markers C0 to CF begin a frame, except C4 (DHT), C8 (JPG) and CC (DAC).
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers that no length follows
_START_OF_SCAN = 0xDA
_MAX_PARTS = 4_096  # segments or chunks before the pixels; a colour profile of 16 MB takes 256 segments
_MAX_FILL = 64  # the most fill bytes before a JPEG marker; encoders write none, or a few for alignment
_MAX_DIMENSIONS = 32  # the most dimensions of an array; numpy 1 has the same limit
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type; type 3, a palette, decodes to three


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The header of an image: the name that TensorFlow gives to its format, and the shape and type of its pixels."""

    format: str
    height: int
    width: int
    channels: int
    dtype: str = "uint8"


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The header of a `.npy` file: type, shape and memory order of the array, and the offset of its first value."""

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
    r"""Return the format of an image that TensorFlow cannot decode; None for any other file.

    >>> foreign_image(b"II*\0" + bytes(8)), foreign_image(b"GIF89a")
    ('TIFF', None)
    """
    known = (name for magic, name in _FOREIGN.items() if data.startswith(magic))
    return next(known, _FOREIGN_BRANDS.get(data[4:12]))


def image_header(data: bytes) -> ImageHeader | None:
    """Return the header of a JPEG, PNG, GIF, BMP or WebP image.

    Return None for any other file, and for a header that is cut or invalid.

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
            return _valid(ImageHeader("gif", height, width, 3))
        if data[:2] == b"BM":
            return _bmp(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError, _EndlessHeader):
        return None  # the header is cut, or has too many parts
    return None


def is_cut_image(data: bytes) -> bool:
    r"""Return whether the end of a JPEG, PNG or WebP image is missing; False for any other file.

    `data` must be the whole file: a JPEG or PNG ends with an end mark, and a WebP states its length.

    >>> is_cut_image(b"RIFF\x64\0\0\0WEBPVP8 "), is_cut_image(b"text")
    (True, False)
    """
    if data[:3] == b"\xff\xd8\xff":
        return _is_cut_jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return data.rfind(b"IEND") < 0
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP" and int.from_bytes(data[4:8], "little") + 8 > len(data)


def _is_cut_jpeg(data: bytes) -> bool:
    """Return whether a JPEG has no end mark after the start of its first scan.

    An end mark before the scan does not count: it belongs to a smaller JPEG within the metadata.
    """
    at = 2
    for _ in range(_MAX_PARTS):
        if at + 4 > len(data):
            return True
        marker = data[at + 1]
        if data[at] != 0xFF:
            return False  # damaged, but not cut: the decoder reports this
        if marker == _START_OF_SCAN:
            return data.rfind(b"\xff\xd9", at) < 0
        if marker == 0xFF:  # a fill byte before the marker
            at += 1
        else:
            at += 2 if marker in _WITHOUT_LENGTH else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


class _EndlessHeader(Exception):
    """Raised when a header has more parts than an encoder writes."""


def _valid(header: ImageHeader) -> ImageHeader | None:
    return header if header.height and header.width and header.channels else None


def _jpeg(data: bytes) -> ImageHeader | None:
    """Read the segments of a JPEG up to the first frame, whose segment states the size of the image.

    A segment is FF, a marker, a length of two bytes, and data. The length counts its own two bytes and the data.
    """
    at = 2
    for _ in range(_MAX_PARTS):
        if data[at] != 0xFF:
            return None
        at = _after_fill(data, at)
        marker = data[at + 1]
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _START_OF_FRAME:
            _, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            return _valid(ImageHeader("jpeg", height, width, components))
        if marker == _START_OF_SCAN or length < 2:  # a scan must not come before the first frame
            return None
        at += 2 + length
    raise _EndlessHeader


def _after_fill(data: bytes, at: int) -> int:
    """Return the position of the last FF before a marker: all FF bytes before this position are fill."""
    for position in range(at, at + _MAX_FILL):
        if data[position + 1] != 0xFF:
            return position
    raise _EndlessHeader


def _png(data: bytes) -> ImageHeader | None:
    """Read the first chunk of a PNG, IHDR.

    A palette with a chunk tRNS (transparency) decodes to four channels.
    """
    if data[12:16] != b"IHDR":
        return None
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    channels = _PNG_CHANNELS.get(colour, 0)
    if colour == 3 and _has_transparency(data):
        channels = 4
    return _valid(ImageHeader("png", height, width, channels, "uint16" if depth == 16 else "uint8"))


def _has_transparency(data: bytes) -> bool:
    at = 8
    for _ in range(_MAX_PARTS):
        if at + 8 > len(data):
            return False
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if kind == b"tRNS":
            return True
        if kind in (b"IDAT", b"IEND"):
            return False
        at += 12 + length
    raise _EndlessHeader


def _bmp(data: bytes) -> ImageHeader | None:
    size, width, height = struct.unpack_from("<Iii", data, 14)
    (bits,) = struct.unpack_from("<H", data, 28)
    if size not in (40, 52, 56, 108, 124) or bits not in (8, 24, 32):
        return None
    return _valid(ImageHeader("bmp", abs(height), width, {8: 1, 24: 3, 32: 4}[bits])) if width > 0 else None


def _webp(data: bytes) -> ImageHeader | None:
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return _valid(ImageHeader("webp", height & 0x3FFF, width & 0x3FFF, 3))
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
    """Return the header of a `.npy` file.

    Return None for any other file, for a header that is cut or invalid, for arrays of structures, and for arrays of
    Python objects, because these arrays are pickled.

    The file begins with: the magic bytes (6), the version (2), the length of the dict (2 or 4, little-endian), and a
    dict as a Python literal. The values follow.
    """
    if data[:6] != _NPY or len(data) < 12:
        return None
    wide = data[6] > 1
    begin = 12 if wide else 10
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    if length > _MAX_NPY_HEADER or begin + length > len(data):
        return None
    try:
        header = ast.literal_eval(data[begin : begin + length].decode("utf-8" if data[6] > 2 else "latin-1").strip())
        dtype, shape = np.dtype(header["descr"]), tuple(int(size) for size in header["shape"])
        fortran_order = bool(header["fortran_order"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError, OverflowError):
        return None
    if dtype.hasobject or dtype.names is not None or not _is_shape(shape, dtype.itemsize):
        return None
    return ArrayHeader(dtype.newbyteorder("=").name, shape, fortran_order, begin + length)


def _is_shape(shape: tuple[int, ...], itemsize: int) -> bool:
    """Return whether a shape is valid: at most 32 dimensions, no negative sizes, less than 2**63 bytes in all."""
    if len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
        return False
    return math.prod(max(1, size) for size in shape) * max(1, itemsize) < 1 << 63


def media_kind(data: bytes) -> str | None:
    """Return the kind of an audio, HDF5 or netCDF file by its first bytes; None for any other file."""
    if (data[:4] == b"RIFF" and data[8:12] == b"WAVE") or data[:4] == b"fLaC":
        return "audio"
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    if data[:3] == b"CDF" and data[3:4] in (b"\x01", b"\x02", b"\x05"):
        return "netcdf"
    return None
