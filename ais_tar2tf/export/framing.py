"""TFRecord framing, both ways.

length  uint64, little-endian       payload  `length` bytes
crc     uint32, masked, of length   crc      uint32, masked, of payload
"""

from __future__ import annotations

import functools
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
]

HEADER_BYTES = 12
_TRAILER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + _TRAILER_BYTES

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_MOST = Limits().record_bytes
_PIECE = 16 * MIB
_REMEMBERED_LENGTHS = 4096  # headers kept: lengths repeat, and each costs a checksum


def _masked(data: bytes) -> bytes:
    return _CRC.pack(masked_crc(data))


@functools.lru_cache(_REMEMBERED_LENGTHS)
def masked_header(length: int) -> bytes:
    """The length and its checksum."""
    packed = _LENGTH.pack(length)
    return packed + _masked(packed)


def frame(payload: bytes) -> bytes:
    """One record of a TFRecord file."""
    return b"".join((masked_header(len(payload)), payload, _masked(payload)))


def payload_length(header: bytes, *, file: str, offset: int) -> int:
    """Return the length that a header states, once its checksum holds.

    Raises:
        LimitExceeded: It is more than `Limits.record_bytes`, so that nobody sets memory aside for it.
    """
    if len(header) < HEADER_BYTES:
        raise TruncatedArchive("the file ends within a record's header", shard=file, offset=offset)
    if _masked(header[:8]) != header[8:HEADER_BYTES]:
        raise ArchiveError("the checksum of a record's length is wrong", shard=file, offset=offset)
    (length,) = _LENGTH.unpack(header[:8])
    if length > _MOST:
        raise LimitExceeded(
            f"the record has {length:,} bytes, Limits.record_bytes is {_MOST:,}", shard=file, offset=offset
        )
    return length


def read_exactly(stream: Any, count: int) -> bytes:
    """Return the next `count` bytes, or as many as there are; memory grows with what comes, not with `count`."""
    if count <= _PIECE:
        return stream.read(count)
    pieces: list[bytes] = []
    while count and (piece := stream.read(min(count, _PIECE))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def check_frame(data: bytes, *, file: str, offset: int) -> bytes:
    """The payload of one whole frame, once both checksums hold."""
    length = payload_length(data[:HEADER_BYTES], file=file, offset=offset)
    end = HEADER_BYTES + length
    if len(data) < end + _TRAILER_BYTES:
        raise TruncatedArchive("the file ends within a record", shard=file, offset=offset)
    payload = data[HEADER_BYTES:end]
    check_payload(payload, data[end : end + _TRAILER_BYTES], file=file, offset=offset)
    return payload


def check_payload(payload: bytes, trailer: bytes, *, file: str, offset: int) -> None:
    """The checksum that follows a payload holds."""
    if _masked(payload) != trailer:
        raise ArchiveError("the checksum of a record is wrong", shard=file, offset=offset)


def frame_offsets(data: Any, *, file: str) -> Iterator[int]:
    """Where each record begins in a file's bytes (a buffer that can be sliced), and last where the file ends."""
    offset, end = 0, len(data)
    while offset < end:
        yield offset
        offset += FRAME_BYTES + payload_length(bytes(data[offset : offset + HEADER_BYTES]), file=file, offset=offset)
    if offset != end:
        raise TruncatedArchive("the file ends within a record", shard=file, offset=end)
    yield end
