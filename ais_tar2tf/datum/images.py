"""Images and masks as files: whole, of one size, and masks as class ids. Nothing is decoded that need not be."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.headers import ImageHeader, image_header

__all__ = ["DECODED_FORMATS", "check_same_size", "checked_header", "mask_of_ids"]

DECODED_FORMATS = ("jpeg", "png", "gif", "bmp")
"""What tf.io.decode_image reads."""

_ENDS = {"jpeg": b"\xff\xd9", "png": b"IEND"}
_PNG_MARK = b"\x89PNG\r\n\x1a\n"
_PALETTE, _GREY = 3, 0
_DEPTH_AT, _COLOUR_AT = 8, 9  # in the body of IHDR


def checked_header(data: bytes, where: str) -> ImageHeader:
    """The header of an image that TensorFlow decodes and that is there to its end."""
    header = image_header(data)
    if header is None or header.format not in DECODED_FORMATS:
        kind = "no image" if header is None else f"a {header.format} image"
        raise SchemaError(f"{where}: this is {kind}; {', '.join(DECODED_FORMATS)} can be read")
    end = _ENDS.get(header.format)
    if end is not None and end not in data:
        raise SchemaError(f"{where}: the {header.format} image is cut off behind {len(data):,} bytes")
    return header


def check_same_size(image: ImageHeader, mask: ImageHeader, where: str) -> None:
    if (image.height, image.width) != (mask.height, mask.width):
        raise SchemaError(
            f"{where}: the mask is {mask.height}×{mask.width}, its image {image.height}×{image.width} (height×width)"
        )


def mask_of_ids(data: bytes) -> bytes:
    """A mask whose pixels are class ids. A palette's PNG holds ids, but decodes to colours: it is made grey."""
    header = image_header(data)
    if header is None or header.format != "png" or data[25:26] != bytes((_PALETTE,)):
        return data
    depth = data[24]
    grey = _PNG_MARK + b"".join(_chunk(kind, body) for kind, body in _grey_chunks(data))
    return grey if depth == 8 else _unscaled(grey, depth)


def _grey_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a palette's PNG as one of grey levels: what was an index now is a level."""
    at = len(_PNG_MARK)
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
    """Of fewer than eight bits: a decoder spreads such levels over 0..255, so they are written anew."""
    import tensorflow as tf

    levels = tf.io.decode_png(grey, channels=1)
    return tf.io.encode_png(levels // (255 // (2**depth - 1))).numpy()
