"""Decompression of a shard: compressed blocks in, decompressed blocks of bounded size out.

A compressed stream consists of *frames*, one after the other, and each frame can be decompressed by itself. The
library of the format decompresses a frame, and verifies the checksums and lengths in the frame. This module finds
where frames begin and end. It bounds the memory of the library, and the ratio of output to input. It must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.archive.compressions import Compression, Frame
from ais_tar2tf.archive.members import Bytes
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive
from ais_tar2tf.options import KIB, MIB, Limits

__all__ = ["RATIO_SLACK", "FrameDecoder"]

RATIO_SLACK = 1 * MIB  # bytes of output that are always allowed, since the ratio means nothing for little input
# The number of bytes that the decompressor of a frame gets first. They are few, because a frame may be tiny, and
# libraries copy the bytes that follow its end.
_FIRST_INPUT = 8 * KIB
# The magic bytes of *skippable* frames, which have no content for the reader.
_SKIPPABLE = frozenset(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
_SKIPPABLE_HEAD = 8  # bytes at the begin of a skippable frame: the magic bytes, and the number of bytes to skip


class FrameDecoder:
    """Decompresses the frames of one shard. Call `feed()` with each block of the shard, and then `finish()`."""

    def __init__(self, shard: str, limits: Limits, compression: Compression) -> None:
        self._shard = shard
        self._limits = limits
        self._compression = compression
        self._bytes_in = 0
        self._bytes_out = 0
        self._any_frame = False  # whether a frame has begun
        self._frame: Frame | None = None  # the frame that is being decompressed
        self._input_bytes = _FIRST_INPUT  # the largest size of the next input of the frame; it doubles at each input
        self._skip = 0  # remaining bytes of a skippable frame
        self._zeros = 0  # zero bytes of padding since the last frame
        self._head = b""  # the first bytes of the next frame, while they are too few to recognise it

    def feed(self, block: Bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of a block. The block may end anywhere, also within a frame."""
        view = memoryview(block)
        self._bytes_in += len(view)
        position = 0
        while position < len(view):
            if self._frame is None:
                position = self._find_frame(view, position)
                continue
            piece = view[position : position + self._input_bytes]
            self._input_bytes = min(2 * self._input_bytes, self._compression.input_bytes)
            unused = yield from self._decompress_all(self._frame, piece)
            position += len(piece) - unused

    def finish(self) -> None:
        """Check that the stream has a frame, that it does not end within a frame, and that its padding is valid."""
        if self._frame is not None or self._skip or self._head or not self._any_frame:
            raise TruncatedArchive(
                f"the {self._compression.name} stream ends within a frame, after {self._bytes_in:,} compressed bytes",
                shard=self._shard,
                offset=self._bytes_out,
            )
        self._check_padding()

    def _decompress_all(self, frame: Frame, data: Bytes) -> Iterator[bytes]:
        """Yield all output of a piece of input; return how many bytes of the piece follow the end of the frame."""
        while True:
            out = self._decompress(frame, data)
            if out:
                self._bytes_out += len(out)
                self._check_ratio()
                yield out
            if frame.eof:
                self._frame = None
                return len(frame.unused_data or b"")
            if frame.needs_input:
                return 0
            data = b""

    def _decompress(self, frame: Frame, data: Bytes) -> bytes:
        """Feed `data` to a frame and return a piece of output. An error of the library becomes an `ArchiveError`."""
        compression = self._compression
        try:
            return frame.decompress(data, compression.output_bytes)
        except compression.errors() as error:
            if compression.memory_message is None or compression.memory_message not in str(error).lower():
                raise self._error(f"the {compression.name} stream is damaged ({error})") from error
            raise LimitExceeded(
                f"the {compression.name} stream needs more memory to look back than Limits.window_bytes, "
                f"which is {self._limits.window_bytes:,} ({error})",
                shard=self._shard,
                offset=self._bytes_out,
            ) from error

    def _find_frame(self, view: memoryview, position: int) -> int:
        """Consume bytes between frames, and open a frame if its magic bytes are complete.

        Return the position in `view` after the consumed bytes.
        """
        if self._skip:
            skipped = min(self._skip, len(view) - position)
            self._skip -= skipped
            return position + skipped
        if not self._head and self._compression.padding and self._any_frame and not view[position]:
            return self._skip_zeros(view, position)
        wanted = self._head_bytes(self._head) - len(self._head)
        head = self._head + bytes(view[position : position + wanted])
        position += len(head) - len(self._head)
        self._head = head
        if not self._may_begin(head):
            raise self._error(f"there is something behind the {self._compression.name} stream that is none: {head!r}")
        if len(head) < self._head_bytes(head):
            return position
        self._check_padding()
        self._head, self._any_frame = b"", True
        if self._is_skippable(head):
            self._skip = int.from_bytes(head[4:], "little")
            return position
        self._input_bytes = _FIRST_INPUT
        self._frame = self._compression.open(self._limits)
        if self._decompress(self._frame, head):
            raise AssertionError("magic bytes are no content")
        return position

    def _head_bytes(self, head: bytes) -> int:
        """Return how many bytes are needed to recognise the frame that begins with `head`."""
        return _SKIPPABLE_HEAD if self._is_skippable(head) else len(self._compression.magic)

    def _is_skippable(self, head: bytes) -> bool:
        return self._compression.skippable and head[:4] in _SKIPPABLE

    def _may_begin(self, head: bytes) -> bool:
        """Return whether a frame may begin with the bytes `head`, which may be fewer than its magic bytes."""
        if self._compression.magic.startswith(head[: len(self._compression.magic)]):
            return True
        return self._compression.skippable and any(magic.startswith(head[:4]) for magic in _SKIPPABLE)

    def _skip_zeros(self, view: memoryview, position: int) -> int:
        """Count the zeros at a position as padding; return the position after them."""
        rest = bytes(view[position : position + self._compression.input_bytes])
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        self._zeros += zeros
        return position + zeros

    def _check_padding(self) -> None:
        """Check that the number of zeros since the last frame is valid, and reset the count to 0."""
        zeros, self._zeros = self._zeros, 0
        padding = self._compression.padding
        if padding and zeros % padding:
            raise self._error(
                f"{zeros} zeros stand between {self._compression.name} streams; they come in {padding}s"
            )

    def _check_ratio(self) -> None:
        if self._bytes_out > RATIO_SLACK + self._limits.ratio * self._bytes_in:
            raise LimitExceeded(
                f"{self._bytes_in:,} compressed bytes have become {self._bytes_out:,}; "
                f"Limits.ratio is {self._limits.ratio:,}",
                shard=self._shard,
                offset=self._bytes_out,
            )

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(message, shard=self._shard, offset=self._bytes_out)
