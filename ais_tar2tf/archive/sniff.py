"""Recognises the format of a shard by the first bytes of the shard, never by its name.

This module must do no I/O: callers feed it the bytes.
"""

from __future__ import annotations

from typing import Literal

from ais_tar2tf.archive.compressions import BZIP2, COMPRESSIONS, ZSTD, Compression
from ais_tar2tf.archive.members import Bytes
from ais_tar2tf.archive.tar_header import BLOCK, ZERO_BLOCK, parse_header
from ais_tar2tf.archive.tfrecord import HEAD_BYTES, is_tfrecord
from ais_tar2tf.archive.zip_records import END, LOCAL
from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = ["SUPPORTED", "Container", "FormatSniffer"]

Container = Literal["tar", "zip", "tfrecord"]
"""A format that holds members."""

SUPPORTED = "tar, zip and TFRecord are read, and these within gzip, zstd, lz4, bzip2 or xz"
# A text may also begin with bzip2's magic bytes "BZh". So the bytes from offset 4 are compared, too. There, a bzip2
# file has the magic bytes of its first block or, if the file has no block, the magic bytes of its end.
_BZIP2_BLOCKS = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")
# A zstd file may begin with a skippable frame: pzstd writes such files. Byte 0 of this frame is 0x50 to 0x5F. These
# are its bytes 1 to 3.
_SKIPPABLE = b"\x2a\x4d\x18"
# The first bytes of formats that are not supported, and the names of these formats for the error.
_REFUSED = {
    b"\x02\x21\x4c\x18": "an lz4 file of the legacy format",  # `lz4 -l` writes such files, for old Linux kernels
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"Rar!\x1a\x07": "a rar file",
    b"PK\x07\x08": "one volume of several of a zip",
    b"\x1f\x9d": "a file of the old `compress`",
    b"!<arch>\n": "an ar file",
    b"\x83\xafp\xd1\r\x88J?": "an ArrayRecord (Riegeli) file; t2t.load(folder) reads the folder of an export of them",
}


class FormatSniffer:
    """Collects the first bytes of a shard until they show the format.

    The `len` of the sniffer is the number of collected bytes; 0 once the format is known.
    """

    def __init__(self, shard: str, offset: int = 0) -> None:
        self._shard = shard
        self._offset = offset
        self._first = b""

    def __len__(self) -> int:
        return len(self._first)

    def feed(self, block: Bytes) -> tuple[Compression | Container | None, Bytes]:
        """Add a block; return the format, and all bytes fed so far. The format is None while more bytes are needed.

        Raises:
            UnsupportedArchive: The bytes do not begin a supported format.
        """
        if self._first:
            block = self._first + bytes(block)
        found = self._recognise(bytes(block[:BLOCK]))
        self._first = bytes(block) if found is None else b""
        return found, block

    def _recognise(self, first: bytes) -> Compression | Container | None:
        if len(first) < HEAD_BYTES:  # HEAD_BYTES are enough for every format but tar
            return None
        for magic, name in _REFUSED.items():
            if first.startswith(magic):
                raise self._refused(f"this is {name}; {SUPPORTED}")
        for compression in COMPRESSIONS:
            if first.startswith(compression.magic) and (compression is not BZIP2 or first[4:10] in _BZIP2_BLOCKS):
                return compression
        if first[1:4] == _SKIPPABLE and first[0] >> 4 == 5:
            return ZSTD
        if first.startswith((LOCAL, END)):
            return "zip"
        if is_tfrecord(first):
            return "tfrecord"
        return self._recognise_tar(first)

    def _recognise_tar(self, first: bytes) -> Container | None:
        if len(first) < BLOCK:
            return None
        if first != ZERO_BLOCK and first[257:262] != b"ustar":
            try:
                parse_header(first, self._shard, 0)  # a v7 tar has no magic bytes: check its checksum
            except ArchiveError as error:
                raise self._refused(f"this is not an archive: it begins with {first[:16]!r}; {SUPPORTED}") from error
        return "tar"

    def _refused(self, message: str) -> UnsupportedArchive:
        return UnsupportedArchive(message, shard=self._shard, offset=self._offset)
