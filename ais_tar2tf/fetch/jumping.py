"""Plans prefetch windows in a shard in which the reader jumps over large fields.

The reader's own thread downloads a window at its position that no worker has begun. Workers download the windows
around the following records, if an index states their offsets, and the blocks after a large window.

No I/O, no threads. Callers hold the lock of the state.
"""

from __future__ import annotations

from ais_tar2tf.fetch.prefetch_windows import PredictedWindows
from ais_tar2tf.fetch.range_requests import RangeRequest, ShardDownload
from ais_tar2tf.fetch.ranges import BLOCK_BYTES
from ais_tar2tf.fetch.sequential import COMBINED_BYTES
from ais_tar2tf.fetch.state import DownloadState
from ais_tar2tf.options import KIB, MIB

__all__ = ["JumpingPlan"]

_FIRST_WINDOW = 8 * KIB  # after a jump: enough for a label and some headers
_MIN_WINDOW = 4 * KIB
_MAX_WINDOW = 256 * KIB  # after a jump: half of the default of `Read.jump_bytes`
_SHRINKING = 8  # a window that was large enough shrinks by 1/8, as it may have been larger than needed
_MAX_READ_AHEAD = 4 * MIB  # beyond it, most downloaded bytes would be jumped over
_BLOCKS_AFTER_WINDOW = 2  # that workers download when a window has become as large as a block
_MAX_PREDICTED = 64  # windows around records; when half of them are left, more are planned


class JumpingPlan:
    """Plans the prefetch windows of the current shard."""

    def __init__(self, state: DownloadState) -> None:
        self._state = state

    def jump(self, shard: ShardDownload, count: int) -> list[RangeRequest]:
        """Jump over `count` bytes of the current shard; return the requests that the jump abandons."""
        target = self._state.delivered + count
        if shard.is_jumping:
            abandoned = self._state.abandon_before(shard, target)
        else:
            self._state.expect_jumps(_MAX_READ_AHEAD, shard, shard.window_bytes or _FIRST_WINDOW)
            self._state.begin_jumping(shard)
            abandoned = self._state.abandon_shard(shard)
        self._state.jump_to(shard, target, self._next_window_bytes(shard))
        if shard.predicted is not None:
            self._plan_predicted(shard, shard.predicted)
        return abandoned

    def _next_window_bytes(self, shard: ShardDownload) -> int:
        if shard.windows_since_jump == 0:
            return shard.window_bytes
        if shard.windows_since_jump == 1:
            return max(_MIN_WINDOW, shard.window_bytes - shard.window_bytes // _SHRINKING)
        return min(self._state.delivered - shard.jump_target, _MAX_WINDOW)

    def plan_here(self, shard: ShardDownload, following: RangeRequest | None) -> RangeRequest:
        """Plan a prefetch window at the reader's position, after a jump or after a window that was too small.

        Each further window is twice as large, up to one block. While the reader's thread downloads a window, it
        consumes no blocks. So a larger window could fill the read-ahead and wait for ever.

        Args:
            shard: The current shard.
            following: The first planned request of the shard, which begins later; None if there is none.
        """
        assert shard.end is not None
        start = self._state.delivered
        end = shard.end if following is None else min(shard.end, following.start)
        size = min(BLOCK_BYTES, shard.window_bytes << min(shard.windows_since_jump, 32))
        if shard.predicted is not None and start != shard.jump_target:
            shard.predicted.grow()
        request = self._state.plan_for_reader(shard, min(end, start + size))
        if size == BLOCK_BYTES:  # the reader consumed many bytes without a jump
            for number in range(1, _BLOCKS_AFTER_WINDOW + 1):
                begin = start + number * BLOCK_BYTES
                self._state.plan_window(shard, begin, min(end, begin + BLOCK_BYTES), may_be_combined=False)
        return request

    def _plan_predicted(self, shard: ShardDownload, predicted: PredictedWindows) -> None:
        """Plan the predicted window at the reader's position, and the windows around the following records."""
        position = self._state.delivered
        stop = predicted.land(position)
        planned = [request for request in self._state.requests if request.shard is shard]
        if stop is not None and (not planned or planned[0].start > position):
            stop = min(stop, planned[0].start) if planned else stop
            window = self._state.plan_window(shard, position, stop, may_be_combined=True)
            planned = planned if window is None else [window, *planned]
        if not planned or len(planned) > _MAX_PREDICTED // 2:
            return
        end = planned[-1].stop or 0
        for start, stop in predicted.following(end, _MAX_PREDICTED - len(planned), COMBINED_BYTES):
            self._state.plan_window(shard, start, stop, may_be_combined=True)
