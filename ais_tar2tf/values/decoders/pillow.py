"""The function `pixels`, which decodes JPEG and PNG images by Pillow, if Pillow is installed.

This module must not import TensorFlow, which costs 650 MB and several seconds. `pixels` returns the same pixels as
`tf.io.decode_png` and `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")`. The default `dct_method` of TensorFlow is a
faster approximation, whose values (0 to 255) differ by about 1.

Pillow must not interpret metadata (EXIF, colour profiles, texts), which could rotate or tint an image, cause a
warning, or unpack to gigabytes. Therefore, Pillow gets only those chunks of a PNG that define its pixels, and a JPEG
without the metadata before its first scan. Pillow itself ignores the metadata after the first scan of a JPEG. The
size that a header states is checked before any pixel is decoded.
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import IMAGE_BYTES
from ais_tar2tf.values.file_headers import ImageHeader, image_header

__all__ = ["pixels"]

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PARTS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_KEPT_SEGMENTS = frozenset({0xE0, 0xEE})  # APP0 (JFIF) and APP14 (Adobe), which define the colour space
_OTHER_SEGMENTS = frozenset({*range(0xE0, 0xF0), 0xFE}) - _KEPT_SEGMENTS  # metadata: other APP segments, comments
_START_OF_SCAN = 0xDA
_JPEG_CHANNELS = {1: 1, 3: 3, 4: 3}  # number of stored channels: number of decoded channels; CMYK becomes RGB
_ALPHA = (2, 4)  # pixels with so many channels have an alpha channel: grey and alpha, or RGB and alpha


def pixels(data: bytes, dtype: str, channels: int) -> Any | None:
    """Return the pixels as an array (height, width, channels), or None if TensorFlow has to decode the image.

    TensorFlow has to decode:

    * formats other than JPEG and PNG, and types other than "uint8" and "uint16"
    * images with 16 bits and several channels, if `dtype` is "uint16"
    * images with colours, if `channels` is 1
    * images that do not decode to four channels, if `channels` is 4; all images, if `channels` is 2
    * JPEGs with two channels, or with more than four
    * all images, if Pillow is not installed, or is configured to decode truncated images without an error

    Args:
        data: The bytes of the file.
        dtype: The type of the values: "uint8" or "uint16".
        channels: The number of channels to return; 0 for as many channels as the image has.

    Raises:
        SchemaError: The image is damaged, or its pixels take `IMAGE_BYTES` or more. As in TensorFlow, the pixels of a
            CMYK JPEG are counted with four channels, although they decode to three.
    """
    is_png = data.startswith(_PNG)
    if not (is_png or data.startswith(_JPEG)) or dtype not in ("uint8", "uint16") or not _is_installed():
        return None
    header = image_header(data)
    if header is None:
        raise SchemaError(f"the {'PNG' if is_png else 'JPEG'} has no whole header")
    if not _is_exact(header, dtype, channels) or _accepts_truncated_images():
        return None
    itemsize = np.dtype(dtype).itemsize
    most_channels = max(channels, header.channels)
    if header.height * header.width * most_channels * itemsize >= IMAGE_BYTES:
        raise SchemaError(
            f"the image has {header.width:,} × {header.height:,} pixels with {most_channels} channels, which take "
            f"{IMAGE_BYTES:,} bytes or more; TensorFlow cannot decode an image of this size either"
        )
    decoded = _png(data, header) if is_png else _jpeg(data)
    if decoded.shape[:2] != (header.height, header.width):
        raise SchemaError(f"the image has {decoded.shape[1]} × {decoded.shape[0]} pixels, unlike its header")
    return _with_channels(_with_dtype(decoded, dtype), channels)


def _is_exact(header: ImageHeader, dtype: str, channels: int) -> bool:
    """Return whether Pillow and this module give exactly TensorFlow's result for this type and number of channels."""
    exact = "uint8" in (header.dtype, dtype) or header.channels == 1
    known = header.format != "jpeg" or header.channels in _JPEG_CHANNELS
    natural = _JPEG_CHANNELS[header.channels] if header.format == "jpeg" and known else header.channels
    return exact and known and (channels in (0, 3) or channels == natural != 2 or (channels == 1 and natural < 3))


@functools.cache
def _is_installed() -> bool:
    return find_spec("PIL") is not None


def _accepts_truncated_images() -> bool:
    from PIL import ImageFile

    return bool(ImageFile.LOAD_TRUNCATED_IMAGES)


def _png(data: bytes, header: ImageHeader) -> Any:
    from PIL import PngImagePlugin

    image = _loaded(PngImagePlugin.PngImageFile, b"".join((_PNG, *_parts_of_png(data))))
    if image.mode == "P":
        image = image.convert("RGBA" if header.channels == 4 else "RGB")
    decoded = _array(image)
    if decoded.dtype == bool:
        return decoded.astype(np.uint8) * 255
    return decoded[..., [0, 3]] if header.channels == 2 and decoded.shape[2] == 4 else decoded


def _parts_of_png(data: bytes) -> Iterator[bytes]:
    """Yield the chunks of a PNG that define its pixels, and verify the CRC of each of these chunks.

    In this function, a chunk is a part of a PNG file: a length, a kind, bytes, and a CRC.
    """
    at = len(_PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, stop = data[at + 4 : at + 8], at + 12 + length
        if stop > len(data):
            break
        if kind in _PNG_PARTS:
            if zlib.crc32(memoryview(data)[at + 4 : stop - 4]) != int.from_bytes(data[stop - 4 : stop], "big"):
                raise SchemaError(f"the PNG is damaged: its chunk {kind.decode()} at {at:,} has a wrong checksum")
            yield data[at:stop]
        if kind == b"IEND":
            return
        at = stop
    raise SchemaError("the PNG is cut: it ends before its last chunk")


def _jpeg(data: bytes) -> Any:
    from PIL import JpegImagePlugin

    decoded = _array(_loaded(JpegImagePlugin.JpegImageFile, b"".join(_parts_of_jpeg(data))))
    if decoded.shape[2] == 4:  # cyan, magenta, yellow and black become RGB, as in TensorFlow
        inks = 255 - decoded.astype(np.int32)
        return (inks[..., 3:] * inks[..., :3] // 255).astype(np.uint8)
    return decoded


def _parts_of_jpeg(data: bytes) -> Iterator[bytes]:
    """Yield the bytes of a JPEG in pieces, without the metadata segments before the first scan (the coded pixels)."""
    at = begin = 2
    yield data[:at]
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes may stand before a marker
            at += 1
            continue
        if marker == _START_OF_SCAN:
            break
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _OTHER_SEGMENTS and stop <= len(data):
            yield data[begin:at]
            begin = stop
        at = stop
    yield data[begin:]


def _loaded(opener: Any, data: bytes) -> Any:
    """Load an image by `opener`, the Pillow class of its format. `Image.open` would also try other formats."""
    try:
        image = opener(io.BytesIO(data))
        image.load()
    except (OSError, SyntaxError, ValueError, struct.error, IndexError) as error:
        raise SchemaError(f"the image is damaged or cut ({error})") from error
    return image


def _array(image: Any) -> Any:
    decoded = np.array(image)
    return decoded[..., np.newaxis] if decoded.ndim == 2 else decoded


def _with_dtype(decoded: Any, dtype: str) -> Any:
    """Return pixels as another type. To get 16 bits, write the 8 bits twice. To get 8 bits, drop the lower 8 bits."""
    if decoded.dtype == np.uint16 and dtype == "uint8":
        return (decoded >> 8).astype(np.uint8)
    if decoded.dtype == np.uint8 and dtype == "uint16":
        return decoded.astype(np.uint16) * np.uint16(257)
    return decoded


def _with_channels(decoded: Any, channels: int) -> Any:
    """Return pixels with `channels` channels: drop the alpha channel, and repeat grey for each colour."""
    if channels in (0, decoded.shape[2]):
        return decoded
    colours = decoded[..., :-1] if decoded.shape[2] in _ALPHA else decoded
    return np.ascontiguousarray(colours) if colours.shape[2] == channels else np.repeat(colours, channels, axis=2)
