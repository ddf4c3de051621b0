"""JPEG and PNG → pixels by Pillow, where it is installed: importing TensorFlow for them costs 650 MB and seconds.

PNG gives the pixels of `tf.io.decode_png`, JPEG those of `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")`. What
TensorFlow takes by default is a faster approximation of that transform, a level or so away from it in each pixel.

Pillow gets nothing but the parts of a file that say what its pixels are. Metadata (EXIF, colour profiles, texts) is
not parsed, so that it cannot turn or tint a picture, warn, or unpack to gigabytes. The size that a header claims is
bounded before a pixel is decoded.
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
from ais_tar2tf.headers import ImageHeader, image_header
from ais_tar2tf.options import IMAGE_BYTES

__all__ = ["pixels"]

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PARTS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_KEPT_SEGMENTS = frozenset({0xE0, 0xEE})  # of the APPn: JFIF and Adobe, which say how colours are coded
_OTHER_SEGMENTS = frozenset({*range(0xE0, 0xF0), 0xFE}) - _KEPT_SEGMENTS
_SCAN = 0xDA
_JPEG_CHANNELS = {1: 1, 3: 3, 4: 3}  # as coded, and as decoded: four inks become three colours
_ALPHA = (2, 4)  # channels of grey and of colours with alpha


def pixels(data: bytes, dtype: str, channels: int) -> Any | None:
    """Return the pixels of an image, (height, width, channels); None where TensorFlow has to decode it.

    That is the case of other formats than JPEG and PNG, of colours with 16 bits, of colours that are to become grey,
    and where Pillow is not installed, or was told to accept images that are cut.

    Args:
        data: The file.
        dtype: "uint8" or "uint16".
        channels: As many are returned; 0: as many as the image has.

    Raises:
        SchemaError: The image is damaged, or larger than `IMAGE_BYTES`.
    """
    is_png = data.startswith(_PNG)
    if not (is_png or data.startswith(_JPEG)) or dtype not in ("uint8", "uint16") or not _is_installed():
        return None
    header = image_header(data)
    if header is None:
        raise SchemaError(f"the {'PNG' if is_png else 'JPEG'} has no whole header")
    if not _is_ours(header, dtype, channels) or _accepts_cut_images():
        return None
    wide = np.dtype(dtype).itemsize
    if header.height * header.width * max(channels, header.channels) * wide >= IMAGE_BYTES:
        raise SchemaError(
            f"the image has {header.width:,} × {header.height:,} pixels: decoded it is over {IMAGE_BYTES:,} bytes, "
            "and TensorFlow decodes none of this size either"
        )
    found = _png(data, header) if is_png else _jpeg(data)
    if found.shape[:2] != (header.height, header.width):
        raise SchemaError(f"the image has {found.shape[1]} × {found.shape[0]} pixels, unlike its header")
    return _of_channels(_of_depth(found, dtype), channels)


def _is_ours(header: ImageHeader, dtype: str, channels: int) -> bool:
    """Return whether Pillow gives exactly what is asked for."""
    exact = "uint8" in (header.dtype, dtype) or header.channels == 1
    known = header.format != "jpeg" or header.channels in _JPEG_CHANNELS
    natural = _JPEG_CHANNELS[header.channels] if header.format == "jpeg" and known else header.channels
    return exact and known and (channels in (0, 3) or channels == natural != 2 or (channels == 1 and natural < 3))


@functools.cache
def _is_installed() -> bool:
    return find_spec("PIL") is not None


def _accepts_cut_images() -> bool:
    from PIL import ImageFile

    return bool(ImageFile.LOAD_TRUNCATED_IMAGES)


def _png(data: bytes, header: ImageHeader) -> Any:
    from PIL import PngImagePlugin

    opened = _opened(PngImagePlugin.PngImageFile, b"".join((_PNG, *_parts_of_png(data))))
    if opened.mode == "P":
        opened = opened.convert("RGBA" if header.channels == 4 else "RGB")
    found = _array(opened)
    if found.dtype == bool:
        return found.astype(np.uint8) * 255
    return found[..., [0, 3]] if header.channels == 2 and found.shape[2] == 4 else found


def _parts_of_png(data: bytes) -> Iterator[bytes]:
    """Yield the chunks that pixels depend on: length, kind, bytes, and the checksum, which is verified."""
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

    found = _array(_opened(JpegImagePlugin.JpegImageFile, b"".join(_parts_of_jpeg(data))))
    if found.shape[2] == 4:  # cyan, magenta, yellow and black, as TensorFlow mixes them
        inks = 255 - found.astype(np.int32)
        return (inks[..., 3:] * inks[..., :3] // 255).astype(np.uint8)
    return found


def _parts_of_jpeg(data: bytes) -> Iterator[bytes]:
    """Yield a JPEG without the segments of metadata before its first scan."""
    at = begin = 2
    yield data[:at]
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill
            at += 1
            continue
        if marker == _SCAN:
            break
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _OTHER_SEGMENTS and stop <= len(data):
            yield data[begin:at]
            begin = stop
        at = stop
    yield data[begin:]


def _opened(opener: Any, data: bytes) -> Any:
    """Open an image by the reader of its format: `Image.open` would look for others, and warn of large ones."""
    try:
        opened = opener(io.BytesIO(data))
        opened.load()
    except (OSError, SyntaxError, ValueError, struct.error, IndexError) as error:
        raise SchemaError(f"the image is damaged or cut ({error})") from error
    return opened


def _array(opened: Any) -> Any:
    found = np.array(opened)
    return found[..., np.newaxis] if found.ndim == 2 else found


def _of_depth(found: Any, dtype: str) -> Any:
    """Scale the values of pixels: to 16 bits by repeating the 8, to 8 bits by leaving out the lower ones."""
    if found.dtype == np.uint16 and dtype == "uint8":
        return (found >> 8).astype(np.uint8)
    if found.dtype == np.uint8 and dtype == "uint16":
        return found.astype(np.uint16) * np.uint16(257)
    return found


def _of_channels(found: Any, channels: int) -> Any:
    """Leave out alpha, and repeat grey, where so many channels are asked for."""
    if channels in (0, found.shape[2]):
        return found
    colours = found[..., :-1] if found.shape[2] in _ALPHA else found
    return np.ascontiguousarray(colours) if colours.shape[2] == channels else np.repeat(colours, channels, axis=2)
