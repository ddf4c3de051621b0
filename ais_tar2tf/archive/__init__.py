"""Blocks of a shard's bytes → its members. What a shard is, its first bytes say, never its name. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.archive._gzip import GZIP_MAGIC, GzipDecoder
from ais_tar2tf.archive._members import Archive, Bytes, Members, Wanted
from ais_tar2tf.archive._tar import TarReader
from ais_tar2tf.archive._tar_header import BLOCK, ZERO_BLOCK, parse_header
from ais_tar2tf.errors import ArchiveError, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["Archive", "Bytes", "Members", "ShardArchive", "TarReader", "Wanted"]

_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
    b"Rar!": "rar",
}


class ShardArchive:
    """The archive in one shard, recognised by content.

    `start` is an offset in the decompressed archive at which a member's headers begin. A plain tar is then fed
    from there; what is compressed is fed from the shard's beginning, and what comes before `start` is dropped.
    `compressed` says which (None until it is known).
    """

    def __init__(
        self,
        shard: str,
        limits: Limits,
        *,
        start: int = 0,
        compressed: bool | None = None,
        wanted: Wanted | None = None,
        allow_missing_end: bool = False,
    ) -> None:
        self.compressed: bool | None = compressed
        self._shard = shard
        self._limits = limits
        self._tar = TarReader(shard, limits, start=start, wanted=wanted, allow_missing_end=allow_missing_end)
        self._drop = start if compressed else 0
        self._decoder = GzipDecoder(shard, limits) if compressed else None
        self._known = start > 0
        self._first = b""

    @property
    def ignored(self) -> int:
        return self._tar.ignored

    @property
    def end(self) -> int:
        """Offset in the archive at which its members end, once it is finished."""
        return self._tar.end

    def feed(self, block: Bytes) -> Iterator[Members]:
        if not self._known:
            if self._first or len(block) < BLOCK:
                self._first += bytes(block)
                if len(self._first) < BLOCK and not self._first.startswith(GZIP_MAGIC):
                    return
                block, self._first = self._first, b""
            self._recognise(bytes(block[:BLOCK]))
        if self._decoder is None:
            yield from self._tar.feed(block)
            return
        for decoded in self._decoder.feed(block):
            drop = min(self._drop, len(decoded))
            self._drop -= drop
            yield from self._tar.feed(decoded[drop:] if drop else decoded)

    def finish(self) -> None:
        if not self._known:
            if self._first and not self._first.startswith(b"\0"):
                self._recognise(self._first.ljust(BLOCK, b"\0"), whole=False)
            raise TruncatedArchive(
                f"the shard has {len(self._first)} bytes: too short for any archive", shard=self._shard, offset=0
            )
        if self._decoder is not None:
            self._decoder.finish()
        if self._drop:
            raise TruncatedArchive("the archive is shorter than it was", shard=self._shard, offset=self._drop)
        self._tar.finish()

    def _recognise(self, first: bytes, *, whole: bool = True) -> None:
        self._known = whole
        self.compressed = first.startswith(GZIP_MAGIC)
        if self.compressed:
            self._decoder = GzipDecoder(self._shard, self._limits)
            return
        for magic, name in _OTHERS.items():
            if first.startswith(magic):
                raise UnsupportedArchive(
                    f"this is a {name} file; tar and tar.gz are read", shard=self._shard, offset=0
                )
        if not whole or first == ZERO_BLOCK or first[257:262] == b"ustar":
            return
        try:
            parse_header(first, self._shard, 0)  # v7 has no magic, but it has a checksum
        except ArchiveError as error:
            raise UnsupportedArchive(
                f"this is not an archive: it begins with {first[:16]!r}", shard=self._shard, offset=0
            ) from error
