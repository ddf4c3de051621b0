"""The algorithm that fills a shuffle window from several lanes. This module must not do I/O.

Reading and seeking use the same algorithm. So seeking, which only adds up sizes, finds the window that reading fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ais_tar2tf.options import Shuffle

__all__ = ["Take", "cut_batch", "fill_window"]

Take = Callable[[int, int, int], tuple[int, int]]
"""A function that takes records from a lane.

Its arguments are the number of the lane, the maximum number of records, and a number of bytes: the record that
reaches this number is the last one. It returns the number of records that were taken, and their bytes.
"""


def cut_batch(sizes: Sequence[int], begin: int, most: int, most_bytes: int) -> tuple[int, int]:
    """Choose records to take at once. Return the number of the first record that is not taken, and the bytes taken.

    The records have the sizes `sizes`, and are taken from number `begin` on. At most `most` records are taken. The
    record with which `most_bytes` is reached is the last one.

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
        shuffle: The bounds of the window, and the number of records in a lane's turn.
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
