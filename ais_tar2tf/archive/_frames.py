"""Compressed streams of one frame or several, blocks in and bounded blocks out; it does no I/O.

gzip calls them members, xz and bzip2 streams, zstd and lz4 frames. Each format says in a file of its own how one of
them is opened; the libraries verify whatever checksums and lengths there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ais_tar2tf.archive._members import Bytes
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import KIB, MIB, Limits

__all__ = ["RATIO_SLACK", "Format", "Frame", "FrameDecoder", "WindowTooLarge"]

RATIO_SLACK = 1 * MIB  # what may come out before the ratio means anything
_FIRST_PIECE = 8 * KIB  # of a frame's input: what stands behind a tiny frame is copied with it
_SKIPPABLE = frozenset(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))  # of zstd and lz4
_SKIPPABLE_HEAD = 8  # its magic, and the length of what is to be skipped


class WindowTooLarge(Exception):
    """A frame needs more memory to look back than `Limits.window_bytes`."""


class Frame(Protocol):
    """One frame, as bz2, lzma, zstd, lz4 and isal all have it."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Bytes, max_length: int = -1) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Format:
    """What tells one compressed format from another."""

    name: str
    magic: bytes  # that every frame begins with
    open: Callable[[Limits], Frame]
    damaged: tuple[type[Exception], ...]  # what its library raises
    padding: int = 0  # zeros between and behind frames come in multiples of it; 0: there are none
    skippable: bool = False  # frames that hold nothing for us may stand between others
    piece: int = 256 * KIB  # of input at once; the libraries copy what they can't use yet
    given: int = 1 * MIB  # out at once: less means more members that are cut, more leaves the cache


class FrameDecoder:
    """Decompresses the frames of one shard."""

    def __init__(self, shard: str, limits: Limits, kind: Format) -> None:
        self._shard = shard
        self._limits = limits
        self._kind = kind
        self._taken = 0  # compressed bytes
        self._given = 0  # decompressed bytes
        self._begun = False
        self._frame: Frame | None = None
        self._piece = _FIRST_PIECE
        self._skip = 0  # bytes of a skippable frame
        self._zeros = 0  # of padding
        self._between = b""  # what stands behind a frame, too short to tell what it is

    def feed(self, block: Bytes) -> Iterator[bytes]:
        view = memoryview(block)
        self._taken += len(view)
        position = 0
        while position < len(view):
            if self._frame is None:
                position = self._begin(view, position)
                continue
            piece = view[position : position + self._piece]
            position += len(piece)
            self._piece = min(2 * self._piece, self._kind.piece)
            unused = yield from self._drain(piece)
            position -= unused

    def finish(self) -> None:
        if self._frame is not None or self._skip or self._between or not self._begun:
            raise TruncatedArchive(
                f"the {self._kind.name} stream ends within a frame, after {self._taken:,} compressed bytes",
                shard=self._shard,
                offset=self._given,
            )
        self._check_padding()

    def _drain(self, piece: Bytes) -> Iterator[bytes]:
        """All that a piece of input yields; the number of its bytes that belong to no frame."""
        frame = self._frame
        assert frame is not None
        data = piece
        while True:
            out = self._decompress(frame, data)
            if out:
                self._given += len(out)
                self._check_ratio()
                yield out
            if frame.eof:
                self._frame = None
                return len(frame.unused_data or b"")
            if frame.needs_input:
                return 0
            data = b""

    def _decompress(self, frame: Frame, data: Bytes) -> bytes:
        try:
            return frame.decompress(data, self._kind.given)
        except self._kind.damaged as error:
            raise self._error(f"the {self._kind.name} stream is damaged ({error})") from error
        except WindowTooLarge as error:
            raise LimitExceeded(
                f"the {self._kind.name} stream needs more memory to look back than Limits.window_bytes, "
                f"which is {self._limits.window_bytes:,} ({error})",
                shard=self._shard,
                offset=self._given,
            ) from error

    def _begin(self, view: memoryview, position: int) -> int:
        """Start the next frame at its magic bytes, and say where the view goes on."""
        if self._skip:
            taken = min(self._skip, len(view) - position)
            self._skip -= taken
            return position + taken
        if not self._between and self._kind.padding and self._begun and not view[position]:
            return self._skip_zeros(view, position)
        need = self._need(self._between)
        head = self._between + bytes(view[position : position + need - len(self._between)])
        position += len(head) - len(self._between)
        self._between = head
        if not self._is_possible(head):
            raise self._error(f"there is something behind the {self._kind.name} stream that is none: {head!r}")
        if len(head) < self._need(head):
            return position
        self._check_padding()
        self._between = b""
        if self._kind.skippable and head[:4] in _SKIPPABLE:
            self._begun = True
            self._skip = int.from_bytes(head[4:], "little")
            return position
        self._begun, self._piece = True, _FIRST_PIECE
        self._frame = self._kind.open(self._limits)
        if self._decompress(self._frame, head):
            raise AssertionError("magic bytes are no content")
        return position

    def _need(self, head: bytes) -> int:
        skips = self._kind.skippable and head[:4] in _SKIPPABLE
        return _SKIPPABLE_HEAD if skips else len(self._kind.magic)

    def _is_possible(self, head: bytes) -> bool:
        if self._kind.magic.startswith(head[: len(self._kind.magic)]):
            return True
        return self._kind.skippable and any(magic.startswith(head[:4]) for magic in _SKIPPABLE)

    def _skip_zeros(self, view: memoryview, position: int) -> int:
        rest = bytes(view[position : position + self._kind.piece])
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        self._zeros += zeros
        return position + zeros

    def _check_padding(self) -> None:
        zeros, self._zeros = self._zeros, 0
        if self._kind.padding and zeros % self._kind.padding:
            raise self._error(
                f"{zeros} zeros stand between {self._kind.name} streams; they come in {self._kind.padding}s"
            )

    def _check_ratio(self) -> None:
        if self._given > RATIO_SLACK + self._limits.ratio * self._taken:
            raise LimitExceeded(
                f"{self._taken:,} compressed bytes have become {self._given:,}; "
                f"Limits.ratio is {self._limits.ratio:,}",
                shard=self._shard,
                offset=self._given,
            )

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self._given)
