"""A reader of TFRecord files. It is fed with blocks, which may end anywhere, and returns each payload as a member.

This module must not do I/O. A record is:

length   uint64, little-endian
crc      uint32, masked CRC-32C of the length
payload  `length` bytes
crc      uint32, masked CRC-32C of the payload

The format has no end mark, so a file that is cut off between two records looks complete.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np
import numpy.typing as npt

from ais_tar2tf.archive.members import Bytes, ListedMembers, Members
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import Limits

__all__ = ["FRAME_BYTES", "HEAD_BYTES", "MASK_DELTA", "TFRecordReader", "is_tfrecord", "masked_crc", "record_name"]

HEAD_BYTES = 12
_TAIL_BYTES = 4
FRAME_BYTES = HEAD_BYTES + _TAIL_BYTES  # the size of a record without its payload
_HEAD = struct.Struct("<QI")
MASK_DELTA = 0xA282EAD8


def masked_crc(data: bytes | npt.NDArray[np.uint8]) -> int:
    """Return the CRC-32C of data, masked as in TFRecord files.

    The mask is there because a plain CRC is a weak check of data that contains CRCs.
    """
    crc: int = google_crc32c.value(data)  # type: ignore[arg-type]  # any object with a buffer
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def is_tfrecord(head: bytes) -> bool:
    """Return whether a file begins with a length and its checksum. `head` has at least the first 12 bytes."""
    return _HEAD.unpack_from(head)[1] == masked_crc(head[:8])


def record_name(number: int) -> str:
    """Return a name for a record, since TFRecord has no names: its number, padded so that names sort like numbers.

    >>> record_name(42)
    '000000042'
    """
    return f"{number:09d}"


class TFRecordReader:
    """A reader of the payloads of one file. It begins at the offset `start`, where record number `number` begins."""

    def __init__(self, shard: str, limits: Limits, *, start: int = 0, number: int = 0) -> None:
        self.ignored: int = 0  # the number of members that are not files; always 0 in this format
        self._shard = shard
        self._limit = limits.record_bytes
        self._at = start  # offset of the first record that was not yielded yet
        self._number = number
        self._partial = bytearray()  # the bytes of a record that ends in a later block

    @property
    def end(self) -> int:
        """The offset after the last record that was yielded."""
        return self._at

    @property
    def ended(self) -> bool:
        """Whether the record that was yielded last is complete. Always true, because a record is one payload here.

        In other archives, later members can belong to the same record.
        """
        return True

    def feed(self, block: Bytes) -> Iterator[Members]:
        """Yield the payloads of the records that end in this block, several at a time."""
        view = memoryview(block)
        position = 0
        while self._partial and position < len(view):
            piece = view[position : position + self._record_bytes() - len(self._partial)]
            self._partial += piece
            position += len(piece)
            if len(self._partial) == self._record_bytes():
                yield self._completed()
        while position < len(view):
            members, position = self._read_whole(view, position)
            if not members.names:
                self._partial += view[position:]
                return
            yield members

    def finish(self) -> None:
        """Check that the file does not end inside a record."""
        if self._partial:
            raise TruncatedArchive(
                f"the file ends within record {self._number:,}",
                shard=self._shard,
                offset=self._at + len(self._partial),
            )

    def _completed(self) -> ListedMembers:
        """Return a copy of the payload of the partial record, which is complete now. Free the partial record."""
        members, _ = self._read_whole(memoryview(self._partial), 0)
        start, size = members.starts[0], members.sizes[0]
        payload = bytes(members.data[start : start + size])
        self._partial = bytearray()
        return members._replace(starts=[0], data=payload)

    def _record_bytes(self) -> int:
        """Return the size that the partial record will have. Until its head is complete, return 12."""
        if len(self._partial) < HEAD_BYTES:
            return HEAD_BYTES
        return FRAME_BYTES + self._payload_bytes(bytes(self._partial[:HEAD_BYTES]))

    def _read_whole(self, view: memoryview, position: int) -> tuple[ListedMembers, int]:
        """Return the payloads of the complete records in the view from `position` on, and where these records end.

        A damaged record raises an error only if it is the first record. Otherwise the records before it are returned,
        and the next call raises the error.
        """
        names, offsets, starts, sizes = list[str](), list[int](), list[int](), list[int]()
        data = np.frombuffer(view, np.uint8)
        while position + HEAD_BYTES <= len(view):
            start = position + HEAD_BYTES
            try:
                size = self._payload_bytes(bytes(view[position:start]))
                if start + size + _TAIL_BYTES > len(view):
                    break
                self._check(data[start : start + size], bytes(view[start + size : start + size + _TAIL_BYTES]))
            except ArchiveError:
                if not names:
                    raise
                break
            names.append(record_name(self._number))
            offsets.append(self._at)
            starts.append(start)
            sizes.append(size)
            self._number += 1
            self._at += HEAD_BYTES + size + _TAIL_BYTES
            position = start + size + _TAIL_BYTES
        return ListedMembers(names, offsets, starts, sizes, view), position

    def _check(self, payload: npt.NDArray[np.uint8], crc: bytes) -> None:
        if int.from_bytes(crc, "little") != masked_crc(payload):
            raise self._damaged("data")

    def _payload_bytes(self, head: bytes) -> int:
        size, crc = _HEAD.unpack(head)
        if crc != masked_crc(head[:8]):
            raise self._damaged("length")
        if size > self._limit:
            raise LimitExceeded(
                f"record {self._number:,} has {size:,} bytes, Limits.record_bytes is {self._limit:,}",
                shard=self._shard,
                offset=self._at,
            )
        return size

    def _damaged(self, what: str) -> ArchiveError:
        return ArchiveError(
            f"the checksum of record {self._number:,}'s {what} is wrong: damaged here, or no TFRecord file",
            shard=self._shard,
            offset=self._at,
        )
