"""TFRecord files, read from blocks of bytes cut anywhere: their payloads as members; it does no I/O.

length  uint64, little-endian       payload  `length` bytes
crc     uint32, masked, of length   crc      uint32, masked, of payload

The format has no end mark: a file that is cut between two records looks whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np
import numpy.typing as npt

from ais_tar2tf.archive._members import Bytes, Members
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import Limits

__all__ = ["FRAME_BYTES", "HEAD_BYTES", "MASK_DELTA", "TFRecordReader", "is_tfrecord", "masked_crc", "record_name"]

HEAD_BYTES = 12
_TAIL_BYTES = 4
FRAME_BYTES = HEAD_BYTES + _TAIL_BYTES  # of a record, beside its payload
_HEAD = struct.Struct("<QI")
MASK_DELTA = 0xA282EAD8


def masked_crc(data: bytes | npt.NDArray[np.uint8]) -> int:
    """As TFRecord files have it, so that a checksum of what holds checksums is not trivial."""
    crc: int = google_crc32c.value(data)  # type: ignore[arg-type]  # whatever has a buffer
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def is_tfrecord(head: bytes) -> bool:
    """Whether the first bytes are a length and its checksum."""
    return _HEAD.unpack_from(head)[1] == masked_crc(head[:8])


def record_name(number: int) -> str:
    """What names a record that has no name: its number in the file, in the same order as text.

    >>> record_name(42)
    '000000042'
    """
    return f"{number:09d}"


class TFRecordReader:
    """The payloads of one file. `start` is the offset of a record, and `number` how many stand before it."""

    def __init__(self, shard: str, limits: Limits, *, start: int = 0, number: int = 0) -> None:
        self.ignored: int = 0
        self._shard = shard
        self._most = limits.record_bytes
        self._at = start  # offset of the next byte that is in no record yet
        self._number = number
        self._held = bytearray()  # a record that the last block cut

    @property
    def end(self) -> int:
        return self._at

    @property
    def ended(self) -> bool:
        """A record is whole when it comes: nothing that follows can belong to it."""
        return True

    def feed(self, block: Bytes) -> Iterator[Members]:
        view = memoryview(block)
        position = 0
        while self._held and position < len(view):
            position += self._complete(view[position:])
            if len(self._held) == self._need(self._held):
                yield self._whole()
        while position < len(view):
            members, position = self._run(view, position)
            if not members.names:
                self._held += view[position:]
                return
            yield members

    def finish(self) -> None:
        if self._held:
            raise TruncatedArchive(
                f"the file ends within record {self._number:,}", shard=self._shard, offset=self._at + len(self._held)
            )

    def _whole(self) -> Members:
        """The record that was cut, its payload as an object of its own: a large one is held once."""
        members, _ = self._run(memoryview(self._held), 0)
        start, size = members.starts[0], members.sizes[0]
        payload = bytes(members.data[start : start + size])
        self._held = bytearray()
        return members._replace(starts=[0], data=payload)

    def _complete(self, view: memoryview) -> int:
        """Add to the record that was cut; how many bytes belong to it."""
        taken = min(len(view), self._need(self._held) - len(self._held))
        self._held += view[:taken]
        return taken

    def _need(self, held: bytearray) -> int:
        """The bytes of a record, as far as its beginning tells."""
        if len(held) < HEAD_BYTES:
            return HEAD_BYTES
        return HEAD_BYTES + self._payload_bytes(bytes(held[:HEAD_BYTES]), self._at) + _TAIL_BYTES

    def _run(self, view: memoryview, position: int) -> tuple[Members, int]:
        """The whole records in the view, and where they end. What is wrong comes behind those before it."""
        names, offsets, starts, sizes = list[str](), list[int](), list[int](), list[int]()
        data = np.frombuffer(view, np.uint8)
        while position + HEAD_BYTES <= len(view):
            start = position + HEAD_BYTES
            try:
                size = self._payload_bytes(bytes(view[position:start]), self._at)
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
        return Members(names, offsets, starts, sizes, view), position

    def _check(self, payload: npt.NDArray[np.uint8], said: bytes) -> None:
        if int.from_bytes(said, "little") != masked_crc(payload):
            raise self._damaged("data", self._at)

    def _payload_bytes(self, head: bytes, offset: int) -> int:
        size, said = _HEAD.unpack(head)
        if said != masked_crc(head[:8]):
            raise self._damaged("length", offset)
        if size > self._most:
            raise LimitExceeded(
                f"record {self._number:,} has {size:,} bytes, Limits.record_bytes is {self._most:,}",
                shard=self._shard,
                offset=offset,
            )
        return size

    def _damaged(self, what: str, offset: int) -> ArchiveError:
        return ArchiveError(
            f"the checksum of record {self._number:,}'s {what} is wrong: damaged here, or no TFRecord file",
            shard=self._shard,
            offset=offset,
        )
