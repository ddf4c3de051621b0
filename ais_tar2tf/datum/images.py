"""Checks of images by their headers, and the conversion of masks with a palette to masks of class ids.

A *mask* is an image that assigns a class id to each pixel of another image. This module must not decode images,
except masks that have a palette and fewer than eight bits per pixel.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.file_headers import ImageHeader, image_header, is_cut_image

__all__ = ["check_image", "segmentation_example"]

_DECODED_FORMATS = ("jpeg", "png", "gif", "bmp")
"""The formats that tf.io.decode_image decodes."""

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PALETTE, _GREY = 3, 0  # colour types of PNG
_IHDR_BODY = 16  # the offset in a PNG at which the body of IHDR, its first chunk, begins
_DEPTH_AT, _COLOUR_AT = 8, 9  # offsets in the body of IHDR


def check_image(data: bytes, where: str) -> ImageHeader:
    """Check an image and return its header.

    Raises:
        SchemaError: TensorFlow does not decode the format, or the end of the image is missing.
    """
    header = image_header(data)
    if header is None or header.format not in _DECODED_FORMATS:
        kind = "no image" if header is None else f"a {header.format} image"
        raise SchemaError(f"{where}: this is {kind}; {', '.join(_DECODED_FORMATS)} can be read")
    if is_cut_image(data):
        raise SchemaError(f"{where}: the {header.format} image is cut off after {len(data):,} bytes")
    return header


def segmentation_example(image: bytes, image_name: str, mask: bytes, mask_name: str) -> dict[str, bytes]:
    """Return an image and its mask as an example, in which the pixels of the mask are class ids.

    Raises:
        SchemaError: `check_image` refuses the image or the mask, or their sizes differ.
    """
    header, mask_header = check_image(image, image_name), check_image(mask, mask_name)
    if (header.height, header.width) != (mask_header.height, mask_header.width):
        raise SchemaError(
            f"{mask_name}: the mask is {mask_header.height}×{mask_header.width}, its image "
            f"{header.height}×{header.width} (height×width)"
        )
    return {"image": image, "label": _mask_to_ids(mask)}


def _mask_to_ids(data: bytes) -> bytes:
    """Return a mask whose decoded pixels are class ids.

    A PNG with a palette stores class ids as indices of the palette, but decoders return the colours of the palette.
    So such a PNG is converted to a grey PNG, whose grey levels are the ids. Any other mask is returned unchanged.
    """
    header = image_header(data)
    colour_at = _IHDR_BODY + _COLOUR_AT
    if header is None or header.format != "png" or data[colour_at : colour_at + 1] != bytes((_PALETTE,)):
        return data
    depth = data[_IHDR_BODY + _DEPTH_AT]
    grey = _PNG_MAGIC + b"".join(_chunk(kind, body) for kind, body in _grey_chunks(data))
    return grey if depth == 8 else _unscaled(grey, depth)


def _grey_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks of a grey PNG, whose grey levels are the palette indices of `data`, a PNG with a palette."""
    at = len(_PNG_MAGIC)
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += 12 + size
        if kind == b"IHDR":
            body = body[:_COLOUR_AT] + bytes((_GREY,)) + body[_COLOUR_AT + 1 :]
        if kind in (b"IHDR", b"IDAT", b"IEND"):
            yield kind, body


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _unscaled(grey: bytes, depth: int) -> bytes:
    """Convert a grey PNG of fewer than eight bits to eight bits, with the same grey levels.

    Decoders scale levels of fewer bits to 0..255, but leave levels of eight bits as they are.
    """
    import tensorflow as tf

    levels = tf.io.decode_png(grey, channels=1)
    return tf.io.encode_png(levels // (255 // (2**depth - 1))).numpy()
