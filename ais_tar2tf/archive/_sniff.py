"""What a shard is, from its first bytes; its name plays no part."""

from __future__ import annotations

from typing import Literal

from ais_tar2tf.archive._bz2 import BZIP2
from ais_tar2tf.archive._frames import Format
from ais_tar2tf.archive._gzip import GZIP
from ais_tar2tf.archive._lz4 import LZ4, LZ4_LEGACY
from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.archive._tar_header import BLOCK, ZERO_BLOCK, parse_header
from ais_tar2tf.archive._tfrecord import HEAD_BYTES, is_tfrecord
from ais_tar2tf.archive._xz import XZ
from ais_tar2tf.archive._zip_records import END, LOCAL
from ais_tar2tf.archive._zstd import ZSTD
from ais_tar2tf.errors import ArchiveError, UnsupportedArchive

__all__ = ["READ", "Beginning", "Container"]

Container = Literal["tar", "zip", "tfrecord"]

READ = "tar, zip and TFRecord are read, and these within gzip, zstd, lz4, bzip2 or xz"
_FORMATS = (GZIP, ZSTD, LZ4, BZIP2, XZ)
_BZIP2_BLOCKS = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")  # a block, or the end; "BZh" alone is text
_SKIPPABLE = b"\x2a\x4d\x18"  # behind any of 16 bytes: pzstd begins with such a frame
_REFUSED = {
    LZ4_LEGACY: "an lz4 file of the legacy format",
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"Rar!\x1a\x07": "a rar file",
    b"PK\x07\x08": "one volume of several of a zip",
    b"\x1f\x9d": "a file of the old `compress`",
    b"!<arch>\n": "an ar file",
    b"\x83\xafp\xd1\r\x88J?": "an ArrayRecord (Riegeli) file; t2t.load(folder) reads the folder of an export of them",
}


class Beginning:
    """Gathers first bytes until they say what follows."""

    def __init__(self, shard: str, offset: int = 0) -> None:
        self._shard = shard
        self._offset = offset
        self._first = b""

    def __len__(self) -> int:
        return len(self._first)

    def take(self, block: Bytes) -> tuple[Format | Container | None, Bytes]:
        """What it is, and all the bytes so far; None while there are too few of them to tell."""
        if self._first:
            block = self._first + bytes(block)
        found = self._recognise(bytes(block[:BLOCK]))
        self._first = bytes(block) if found is None else b""
        return found, block

    def _recognise(self, first: bytes) -> Format | Container | None:
        if len(first) < HEAD_BYTES:  # enough for all that say what they are
            return None
        for magic, name in _REFUSED.items():
            if first.startswith(magic):
                raise self._refused(f"this is {name}; {READ}")
        for kind in _FORMATS:
            if first.startswith(kind.magic) and (kind is not BZIP2 or first[4:10] in _BZIP2_BLOCKS):
                return kind
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
                parse_header(first, self._shard, 0)  # v7 has no magic, but it has a checksum
            except ArchiveError as error:
                raise self._refused(f"this is not an archive: it begins with {first[:16]!r}; {READ}") from error
        return "tar"

    def _refused(self, message: str) -> UnsupportedArchive:
        return UnsupportedArchive(message, shard=self._shard, offset=self._offset)
