"""Moves the bytes of one body into blocks of a range request, while the read-ahead has room for them.

If the store states no strong validator, the bytes are hashed. After a break, the next body of the shard begins at the
same byte as the previous body: the bytes that were received before are skipped, and must have the same hash.
"""

from __future__ import annotations

import time

from ais_tar2tf.errors import ObjectChanged, TransportError
from ais_tar2tf.fetch.buffers import BufferPool
from ais_tar2tf.fetch.prefix import Differs, Prefix
from ais_tar2tf.fetch.range_requests import RangeRequest
from ais_tar2tf.fetch.ranges import BLOCK_BYTES
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.stores import Body

__all__ = ["Receiver"]

_FIRST_BLOCK = 64 * KIB  # of a shard, so that the first record need not wait for a full block; then blocks double
_MAX_UNVERIFIED = 128 * MIB  # bytes held back until a hash proves them: a shuffle window and its read-ahead


class Receiver:
    """Receives bodies into range requests, in the thread that downloads them."""

    def __init__(self, state: DownloadState, buffers: BufferPool) -> None:
        self._state = state
        self._buffers = buffers

    def skip_received(self, request: RangeRequest, body: Body) -> None:
        """Skip the bytes of a body that were received before; without a validator, compare their hash.

        Raises:
            Differs: The hash is different.
        """
        shard, begin = request.shard, request.received_to
        if not shard.lacks_validator:
            self._skip(body, begin - body.start, shard.url)
            return
        self._skip(body, shard.body_start - body.start, shard.url)
        again = Prefix(shard.wanted.identity.fingerprint)
        self._skip(body, begin - shard.body_start, shard.url, again)
        if request.prefix is not None and again.text != request.prefix.text:
            raise Differs
        self._state.restart_hash(request, again)

    def receive(self, request: RangeRequest, body: Body) -> None:
        """Receive a body until the request is filled, the body ends, or the request is abandoned.

        Raises:
            Differs: The bytes do not have the hash that a position states.
        """
        block_size = _FIRST_BLOCK if request.start == request.shard.wanted.start else BLOCK_BYTES
        while True:
            left = request.missing
            if left == 0 and request.shard.lacks_validator:
                self._check_end(request, body)
            size = block_size if left is None else min(block_size, left)
            if left == 0 or not self._wait_for_room(request, size):
                return
            count = self._fill(request, body, *self._buffers.get(size), left)
            if not count:
                if left is not None:
                    raise TransportError(f"it ended {left:,} bytes early", url=request.shard.url)
                if request.awaits_proof:
                    raise Differs
                return
            block_size = min(BLOCK_BYTES, 2 * block_size)

    def _skip(self, body: Body, left: int, url: str, prefix: Prefix | None = None) -> None:
        buffer = memoryview(bytearray(min(max(0, left), BLOCK_BYTES)))
        while left > 0:
            count = body.readinto(buffer[:left])
            if not count:
                raise TransportError(f"it ended {left:,} bytes early", url=url)
            if prefix is not None:
                prefix.add(buffer[:count])
            left -= count

    def _check_end(self, request: RangeRequest, body: Body) -> None:
        """Check that a body of unknown length ends at the same byte as the shard's first body."""
        is_unknown = body.info.size is None and request.shard.wanted.stop is None
        if is_unknown and body.readinto(memoryview(bytearray(1))):
            raise Differs

    def _fill(self, request: RangeRequest, body: Body, buffer: memoryview, begin: int, left: int | None) -> int:
        """Fill a buffer from `begin` on, and add this part as a block.

        The block is less than full only at the end, or if the reader waits.
        """
        view = buffer[begin:] if left is None else buffer[begin:][:left]
        filled = 0
        try:
            while filled < len(view):
                count = body.readinto(view[filled:])
                filled += count
                if not count or self._state.awaited is request:
                    break
        finally:
            if filled:
                if request.prefix is not None:
                    request.prefix.add(view[:filled])
                with self._state.lock:
                    self._state.add_block(request, buffer, begin, begin + filled)
        return filled

    def _wait_for_room(self, request: RangeRequest, size: int) -> bool:
        """Wait until the read-ahead has room for `size` more bytes; return False if the request is abandoned."""
        if request.prefix is not None and request.awaits_proof:
            self._check_unverified(request, request.prefix)
            return True
        with self._state.lock:
            while not self._state.is_closed and not request.is_abandoned:
                if self._state.has_room(request, size):
                    return True
                began = time.monotonic()
                self._state.lock.wait()
                self._state.note_blocked(request, time.monotonic() - began)
            return False

    def _check_unverified(self, request: RangeRequest, prefix: Prefix) -> None:
        """Bound the bytes that are held back. The read-ahead cannot, as the reader consumes none of them."""
        unverified = prefix.expected_size - request.start
        if unverified > _MAX_UNVERIFIED:
            raise ObjectChanged(
                "it is not certain that the object is still the one that the checkpoint is of: the store states no "
                f"strong ETag, version or checksum, and {unverified:,} bytes would have to be compared before the "
                "first record; start this shard again",
                url=request.shard.url,
            )
