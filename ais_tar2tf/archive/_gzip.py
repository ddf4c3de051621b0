"""gzip, one member or several, blocks in and blocks out; it does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from isal import isal_zlib

from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import MIB, Limits

__all__ = ["GZIP_MAGIC", "GzipDecoder"]

GZIP_MAGIC = b"\x1f\x8b"
_DAMAGED = cast("type[Exception]", isal_zlib.error)  # isal's stub takes the class for an instance
_OUT_BYTES = 1 * MIB  # given out at once: what the tar reader takes well
_RATIO_SLACK = 1 * MIB  # before the ratio means anything


class GzipDecoder:
    """Decompresses the gzip members of one shard, whose checksums and lengths are verified by isal."""

    def __init__(self, shard: str, limits: Limits) -> None:
        self._shard = shard
        self._ratio = limits.ratio
        self._taken = 0  # compressed bytes
        self._given = 0  # decompressed bytes
        self._begun = False
        self._member = None
        self._between = b""  # what stands behind a member, too short to tell what it is

    def feed(self, block: Bytes) -> Iterator[bytes]:
        self._taken += len(block)
        data: Bytes = block
        while data:
            if self._member is None:
                data = self._begin(data)
                continue
            out = self._decompress(data)
            self._given += len(out)
            self._check_ratio()
            if out:
                yield out
            if self._member.eof:
                data, self._member = self._member.unused_data, None
            else:
                data = self._member.unconsumed_tail

    def finish(self) -> None:
        if self._member is not None or self._between:
            raise TruncatedArchive(
                f"the gzip stream ends within a member, after {self._taken:,} compressed bytes",
                shard=self._shard,
                offset=self._given,
            )

    def _begin(self, data: Bytes) -> bytes:
        """Start the next member at its magic bytes; zeros between members are padding, as gzip has it."""
        rest = self._between + bytes(data)
        if self._begun:
            rest = rest.lstrip(b"\0")
        self._between = b""
        if len(rest) < len(GZIP_MAGIC):
            self._between = rest
            return b""
        if not rest.startswith(GZIP_MAGIC):
            raise ArchiveError(
                f"there is something behind the gzip stream that is none: {rest[:8]!r}",
                shard=self._shard,
                offset=self._given,
            )
        self._begun = True
        self._member = isal_zlib.decompressobj(wbits=31)
        return rest

    def _decompress(self, data: Bytes) -> bytes:
        assert self._member is not None
        try:
            return self._member.decompress(data, _OUT_BYTES)
        except _DAMAGED as error:
            raise ArchiveError(
                f"the gzip stream is damaged ({error})", shard=self._shard, offset=self._given
            ) from error

    def _check_ratio(self) -> None:
        if self._given > _RATIO_SLACK + self._ratio * self._taken:
            raise LimitExceeded(
                f"{self._taken:,} compressed bytes have become {self._given:,}; Limits.ratio is {self._ratio:,}",
                shard=self._shard,
                offset=self._given,
            )
