"""Builds and checks the frames around the records of a TFRecord file.

A frame has four parts, in this order:

length   uint64, little-endian
crc      uint32: the masked checksum of the length
payload  `length` bytes: the record
crc      uint32: the masked checksum of the payload

This module must not trust a length that a file states: it allocates memory in pieces, as bytes arrive.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Iterator
from typing import Any

from ais_tar2tf.archive import masked_crc
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import MIB, Limits

__all__ = [
    "FRAME_BYTES",
    "HEADER_BYTES",
    "check_frame",
    "check_payload",
    "frame",
    "frame_offsets",
    "masked_header",
    "payload_length",
    "read_exactly",
    "read_frames",
]

HEADER_BYTES = 12
_TRAILER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + _TRAILER_BYTES

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_MAX_PAYLOAD = Limits().record_bytes
_PIECE = 16 * MIB  # bytes read at once
_CACHED_HEADERS = 4096  # headers are cached, because lengths repeat and each header costs a checksum


def _masked(data: bytes) -> bytes:
    return _CRC.pack(masked_crc(data))


@functools.lru_cache(_CACHED_HEADERS)
def masked_header(length: int) -> bytes:
    """Return the header of a record with this payload length: the length and its checksum."""
    packed = _LENGTH.pack(length)
    return packed + _masked(packed)


def frame(payload: bytes) -> bytes:
    """Return a payload with the frame around it, as the bytes of a record in a TFRecord file."""
    return b"".join((masked_header(len(payload)), payload, _masked(payload)))


def payload_length(header: bytes, *, file: str, offset: int) -> int:
    """Return the payload length that a header states.

    Raises:
        TruncatedArchive: The header is cut.
        ArchiveError: The checksum of the length is wrong.
        LimitExceeded: The length is over `Limits.record_bytes`, so the caller must not allocate this many bytes.
    """
    if len(header) < HEADER_BYTES:
        raise TruncatedArchive("the file ends within a record's header", shard=file, offset=offset)
    if _masked(header[:8]) != header[8:HEADER_BYTES]:
        raise ArchiveError("the checksum of a record's length is wrong", shard=file, offset=offset)
    (length,) = _LENGTH.unpack(header[:8])
    if length > _MAX_PAYLOAD:
        raise LimitExceeded(
            f"the record has {length:,} bytes, Limits.record_bytes is {_MAX_PAYLOAD:,}", shard=file, offset=offset
        )
    return length


def read_exactly(stream: Any, count: int) -> bytes:
    """Return the next `count` bytes, or fewer at the end of the stream.

    Memory is allocated only as bytes arrive. So a `count` that is wrong and huge does not allocate `count` bytes.
    """
    if count <= _PIECE:
        return stream.read(count)
    pieces: list[bytes] = []
    while count and (piece := stream.read(min(count, _PIECE))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def check_frame(data: bytes, *, file: str, offset: int) -> bytes:
    """Return the payload of a complete frame.

    Raises:
        ArchiveError: A checksum is wrong, or the frame is cut.
    """
    length = payload_length(data[:HEADER_BYTES], file=file, offset=offset)
    end = HEADER_BYTES + length
    if len(data) < end + _TRAILER_BYTES:
        raise TruncatedArchive("the file ends within a record", shard=file, offset=offset)
    payload = data[HEADER_BYTES:end]
    check_payload(payload, data[end : end + _TRAILER_BYTES], file=file, offset=offset)
    return payload


def check_payload(payload: bytes, trailer: bytes, *, file: str, offset: int) -> None:
    """Raise `ArchiveError` unless `trailer` is the checksum of `payload`."""
    if _masked(payload) != trailer:
        raise ArchiveError("the checksum of a record is wrong", shard=file, offset=offset)


def frame_offsets(data: Any, *, file: str) -> Iterator[int]:
    """Yield the offset of each record in a TFRecord file, then the length of the file. Read only the headers.

    Args:
        data: The bytes of the file, as an object that can be sliced.
        file: The name of the file, for errors.
    """
    offset, end = 0, len(data)
    while offset < end:
        yield offset
        offset += FRAME_BYTES + payload_length(bytes(data[offset : offset + HEADER_BYTES]), file=file, offset=offset)
    if offset != end:
        raise TruncatedArchive("the file ends within a record", shard=file, offset=end)
    yield end


def read_frames(stream: io.BufferedReader[Any], url: str) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the payload of each record of a TFRecord file, after verifying both checksums."""
    offset = 0
    while header := stream.read(HEADER_BYTES):
        length = payload_length(header, file=url, offset=offset)
        rest = read_exactly(stream, length + FRAME_BYTES - HEADER_BYTES)
        yield offset, check_frame(header + rest, file=url, offset=offset)
        offset += FRAME_BYTES + length
