"""The algorithm that fills a shuffle window from several lanes, for reading and for seeking. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ais_tar2tf.options import Shuffle

__all__ = ["Take", "cut_batch", "fill_window"]

Take = Callable[[int, int, int], tuple[int, int]]
"""Take records from a lane: (lane, most records, most bytes) → (records, bytes)."""


def cut_batch(sizes: Sequence[int], begin: int, most: int, most_bytes: int) -> tuple[int, int]:
    """Choose the records to take at once, from number `begin` on; return the number after the last, and their bytes.

    At most `most` records are taken. The record that reaches `most_bytes` is the last one.

    >>> cut_batch([5, 5, 5, 5], 1, most=3, most_bytes=6)
    (3, 10)
    """
    end = min(len(sizes), begin + most)
    total = sum(sizes[begin:end])
    while end > begin + 1 and total - sizes[end - 1] >= most_bytes:
        end -= 1
        total -= sizes[end]
    return end, total


def fill_window(shuffle: Shuffle, lanes: int, lane: int, turn: int, take: Take) -> tuple[int, int, int]:
    """Fill one window with records that are taken from the lanes in turns.

    Args:
        shuffle: The bounds of the window and of a turn.
        lanes: The number of lanes.
        lane: The lane whose turn it is.
        turn: The number of records already taken from `lane` in its turn.
        take: Takes records from a lane; it returns 0 records at the lane's end.

    Returns:
        The number of records in the window, and the lane and turn with which the next window begins.
    """
    count = size = ended = 0
    while count < shuffle.window and size < shuffle.window_bytes and ended < lanes:
        most = min(shuffle.in_turn - turn, shuffle.window - count)
        taken, taken_bytes = take(lane, most, shuffle.window_bytes - size)
        count += taken
        size += taken_bytes
        turn += taken
        ended = 0 if taken else ended + 1
        if not taken or turn == shuffle.in_turn:
            lane, turn = (lane + 1) % lanes, 0
    return count, lane, turn
